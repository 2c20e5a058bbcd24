//go:build !linux

package main

import "syscall"

// childAttributes: a group of its own. Without a parent-death signal the inherited lifeline is what ends the parts.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
