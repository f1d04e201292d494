package config

import (
	"slices"

	"golang.org/x/sys/unix"
)

// isPseudo reports whether dir is in a file system that stores nothing, such as
// /proc. The superuser seems to be allowed to write there.
func isPseudo(dir string) bool {
	var stat unix.Statfs_t
	if unix.Statfs(dir, &stat) != nil {
		return false // whoever opens the directory will say why
	}
	return slices.Contains([]int64{
		unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC,
		unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC,
		unix.SECURITYFS_MAGIC, unix.DEVPTS_SUPER_MAGIC, unix.BPF_FS_MAGIC,
	}, int64(stat.Type)) //nolint:unconvert // it is an int32 on some machines
}
