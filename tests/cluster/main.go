// Command pointsman-cluster is a real Kubernetes control plane in one binary, for Pointsman's tests and demo: etcd, the API
// server, the controller manager, the scheduler, kwok (which plays nodes and kubelets) and metrics-server, each run as a
// process of its own by re-executing this binary.
package main

import (
	"fmt"
	"os"
)

const usage = `pointsman-cluster runs a Kubernetes control plane with simulated nodes.

  pointsman-cluster up --dir DIR [flags]        start it; it ends when stdin closes (or by --no-stdin: by a signal)
  pointsman-cluster ctl --dir DIR COMMAND ...   talk to a running one (ctl --help lists the commands)
  pointsman-cluster fetch --out NDIR            get the neighbours' CRDs from their published Go modules
  pointsman-cluster sweep PARENT                remove what killed instances left in PARENT
  pointsman-cluster validate                    measure Kubernetes' own evaluation of CEL, given on stdin

Run a subcommand with --help for its flags.
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	args := os.Args[2:]
	var err error
	switch os.Args[1] {
	case "up":
		err = up(args)
	case "ctl":
		err = ctl(args)
	case "fetch":
		err = fetch(args)
	case "sweep":
		err = sweepCommand(args)
	case "validate":
		err = validate(args)
	case "part":
		err = runPart(args)
	case "help", "--help", "-h":
		fmt.Print(usage)
	default:
		err = fmt.Errorf("%q is not a subcommand of pointsman-cluster: use up, ctl, fetch, sweep or validate", os.Args[1])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %s\n", sentence(err))
		os.Exit(1)
	}
}
