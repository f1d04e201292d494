//go:build unix && !linux

package crash

import "syscall"

func childAttributes() *syscall.SysProcAttr { return nil }
