package crash

import "syscall"

// childAttributes have the kernel kill a child whose parent has died, however
// that came.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
