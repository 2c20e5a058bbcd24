package main

import "syscall"

// childAttributes: a group of its own, and the kernel kills the child when the supervisor's spawning thread is gone.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
