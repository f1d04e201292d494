//go:build unix && !linux

package cluster

import "syscall"

func childAttributes() *syscall.SysProcAttr { return nil }
