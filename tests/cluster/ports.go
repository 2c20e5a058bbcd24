package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are chosen below the range that systems hand out for outgoing connections (32768 and up on Linux), so that a part
// which is down for a while, on purpose, finds its port free when it is started again.
const (
	lowestPort  = 20000
	highestPort = 32767
)

// freePort picks a loopback port at random that nothing listens on now. Somebody may still take it before the part does:
// starting a part copes with that by choosing another.
func freePort() (int, error) {
	for range 500 {
		port := lowestPort + rand.IntN(highestPort-lowestPort+1)
		if portIsFree(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free loopback port was found between %d and %d", lowestPort, highestPort)
}

func portIsFree(port int) bool {
	listener, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	_ = listener.Close()
	return true
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
