// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/adit-hv/adit/internal/rpc"
	"github.com/adit-hv/adit/operator/ha"
)

// flags are all that can be told on the command line.
type flags struct {
	kubeconfig string
	namespace  string
	qps        float32
	verbosity  int
	bmcTimeout time.Duration

	election bool
	listen   string
	files    rpc.Files
	socket   string
	metrics  string
	health   string
	pprof    string
	noBMC    bool

	limits ha.Limits
}

// election is the name of the Lease by which the replicas elect a leader.
const election = "ha-service"

func defaults() *flags {
	return &flags{
		namespace: "kvm", qps: 100, bmcTimeout: 15 * time.Second,
		election: true, listen: ":7443", metrics: ":8080", health: ":8081",
		limits: ha.Defaults(),
	}
}

// common are the flags of all commands.
func (f *flags) common(s *pflag.FlagSet) {
	s.SortFlags = false
	s.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig, "file with the way to the API; else $KUBECONFIG, else that of the pod")
	s.StringVarP(&f.namespace, "namespace", "n", f.namespace, "of the agents' Leases, the election, the ConfigMap ha and the controllers' Secrets")
	s.DurationVar(&f.bmcTimeout, "bmc-timeout", f.bmcTimeout, "how long one request to a management controller may take")
	s.IntVarP(&f.verbosity, "verbosity", "v", f.verbosity, "1 also says why nothing is done")
}

// service are those of the service itself.
func (f *flags) service(s *pflag.FlagSet) {
	s.SortFlags = false
	s.StringVar(&f.listen, "listen", f.listen, `address for agents of other machines; "" is none`)
	s.StringVar(&f.files.Certificate, "tls-cert", "", "PEM file with this service's certificate; it is read again when it changes, as the next two")
	s.StringVar(&f.files.Key, "tls-key", "", "PEM file with its key")
	s.StringVar(&f.files.Authority, "tls-ca", "", "PEM file with the authority of the agents' certificates")
	s.StringVar(&f.socket, "socket", "", "path of a Unix socket for agents of this machine; who may open it may report for any host")
	s.BoolVar(&f.election, "leader-election", f.election, "false: this is the only replica")
	s.StringVar(&f.metrics, "metrics", f.metrics, `address for Prometheus; "0" is none`)
	s.StringVar(&f.health, "health", f.health, `address for /healthz and /readyz; "0" is none`)
	s.StringVar(&f.pprof, "pprof", "", "address for Go's profiles; none by default, as whoever reaches it may slow the service down")
	s.Float32Var(&f.qps, "kube-qps", f.qps, "requests to the API a second; twice as many at once")
	s.BoolVar(&f.noBMC, "no-bmc", f.noBMC, "use no management controllers: hosts are fenced by the end of their lease, or by a person's word")

	l := &f.limits
	s.DurationVar(&l.Interval, "interval", l.Interval, "between the agents' reports; a host is Suspect after 3 that did not come, Unreachable after 5")
	s.DurationVar(&l.Settle, "settle", l.Settle, "how long a new leader, and a zone after a storm, is looked at before silence counts")
	s.DurationVar(&l.Outage, "outage", l.Outage, "after so long without writes to the API all is held")
	s.DurationVar(&l.Rejoin, "rejoin", l.Rejoin, "how long a host that is back has to be well before it serves")
	s.DurationVar(&l.Margin, "margin", l.Margin, "for calls under way and clocks that drift, besides 2 %, before a lease's end proves anything")
	s.DurationVar(&l.Stranded, "stranded", l.Stranded, "how long a host cannot write to storage that others can before its VMs are moved")
	s.Float64Var(&l.StormShare, "storm-share", l.StormShare, "more than this share of a zone's hosts silent at once is a storm: nobody there is fenced")
	s.IntVar(&l.StormHosts, "storm-hosts", l.StormHosts, "but not so few hosts")
	s.IntVar(&l.FencesZone, "fences-zone", l.FencesZone, "hosts of a zone that are being fenced at once")
	s.IntVar(&l.FencesFleet, "fences", l.FencesFleet, "hosts in all that are being fenced at once")
	s.IntVar(&l.PerFleet, "per-fleet", l.PerFleet, "evacuated VMs that do not run yet, in all")
	s.DurationVar(&l.HoldDown, "hold-down", l.HoldDown, "how long a host fenced twice within --flap-within stays out; doubled each time")
	s.DurationVar(&l.HoldDownMax, "hold-down-max", l.HoldDownMax, "and at most")
	s.DurationVar(&l.FlapWithin, "flap-within", l.FlapWithin, "see --hold-down")
	s.BoolVar(&l.PowerOn, "power-on", l.PowerOn, "power a host on again once its VMs run elsewhere")
}

// aboveZero says which flag is a time or a number that is not above 0, which would
// be taken for its default.
func aboveZero(s *pflag.FlagSet) (err error) {
	s.VisitAll(func(f *pflag.Flag) {
		n, ok := f.Value.String(), f.Value.Type() == "duration" || f.Value.Type() == "int" || f.Value.Type() == "float32"
		if ok && f.Name != "verbosity" && (n == "0" || n == "0s" || strings.HasPrefix(n, "-")) {
			err = errors.Join(err, fmt.Errorf("--%s %s: it has to be above 0", f.Name, n))
		}
	})
	return err
}

// check says what cannot work.
func (f *flags) check() error {
	if f.listen == "" && f.socket == "" {
		return errors.New("nobody could report: give --listen, --socket, or both")
	}
	if missing := f.files.Certificate == "" || f.files.Key == "" || f.files.Authority == ""; f.listen != "" && missing {
		return fmt.Errorf(`--listen %s needs --tls-cert, --tls-key and --tls-ca; for agents of this machine alone give --listen "" and --socket`, f.listen)
	}
	if f.limits.StormShare <= 0 || f.limits.StormShare > 1 {
		return fmt.Errorf("--storm-share %v: a share is above 0 and at most 1", f.limits.StormShare)
	}
	if f.limits.Interval < time.Second {
		return fmt.Errorf("--interval %s: it is that of the agents, 1s or more", f.limits.Interval)
	}
	return nil
}
