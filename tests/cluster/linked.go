package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.etcd.io/etcd/server/v3/storage/wal"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the client metrics that each upstream main registers
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	metricsserver "sigs.k8s.io/metrics-server/cmd/metrics-server/app"
)

// lifelineEnv names the inherited descriptor whose other end only the supervisor holds: end of file means that it is gone.
const lifelineEnv = "POINTSMAN_CLUSTER_LIFELINE"

// runPart becomes one linked-in component: `part NAME FLAGS...`, with the component's own flags.
func runPart(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("`part` needs the name of a part")
	}
	if err := holdLifeline(); err != nil {
		return err
	}
	name, rest := args[0], args[1:]
	// The components read os.Args themselves, so each must see the command line that it would have on its own.
	os.Args = append([]string{name}, rest...)
	switch name {
	case partEtcd:
		// 64 MB of preallocated log a segment is for disks that last; a throw-away store starts faster with less.
		wal.SegmentSizeBytes = 16 * 1000 * 1000
		etcdmain.Main(os.Args)
		return nil
	case partAPIServer:
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case partControllerManager:
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case partScheduler:
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case partMetrics:
		return quiet(metricsserver.NewMetricsServerCommand(genericapiserver.SetupSignalHandler())).Execute()
	case partKwok:
		return runKwok()
	}
	return fmt.Errorf("%q is not a part that is linked into this binary", name)
}

// runKwok does what kwok's own main does.
func runKwok() error {
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, stop := signalContext(context.Background())
	defer stop()
	ctx, _ = kwoklog.InitFlags(ctx, flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		return err
	}
	command := quiet(kwok.NewCommand(ctx))
	// Kubernetes' libraries register a global --version of their own kind, over which cobra's would stumble.
	command.Version = ""
	command.PersistentFlags().AddFlagSet(flags)
	return command.ExecuteContext(ctx)
}

func quiet(command *cobra.Command) *cobra.Command {
	command.SilenceUsage = true
	command.SilenceErrors = true
	return command
}

// holdLifeline ends this process when the supervisor is gone. Linux kills us by itself (the parent-death signal); this is
// the belt for other systems.
func holdLifeline() error {
	value := os.Getenv(lifelineEnv)
	if value == "" {
		return nil
	}
	os.Unsetenv(lifelineEnv)
	fd, err := strconv.Atoi(value)
	if err != nil {
		return fmt.Errorf("%s is %q, which is not a file descriptor", lifelineEnv, value)
	}
	line := os.NewFile(uintptr(fd), "lifeline")
	go func() {
		_, _ = io.Copy(io.Discard, line)
		os.Exit(1)
	}()
	return nil
}
