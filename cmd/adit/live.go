// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/rest"

	"github.com/adit-hv/adit/internal/controlplane"
	"github.com/adit-hv/adit/live"
	"github.com/adit-hv/adit/reports"
)

// playLive plays a scenario on a real API server: the one that is named, or one
// started for this run alone.
func playLive(ctx context.Context, j job, f runFlags) (r reports.Record) {
	notRun := func(reason string) reports.Record { return j.scenario.NotRun(j.options, reason) }
	if why := j.scenario.NotLive(j.options.Live.Mode); why != "" {
		return notRun(why)
	}
	config, stop, err := apiServer(ctx, f)
	if err != nil {
		return notRun(err.Error())
	}
	defer func() {
		if err := stop(); err != nil {
			// Of a run that was interrupted, nobody reads the record.
			fmt.Fprintln(os.Stderr, "adit: clean up:", err)
			if r.Verdict == "pass" {
				r = notRun(err.Error())
			}
		}
	}()
	j.options.Live.Runtime, err = live.New(ctx, live.Options{Config: config, Speed: f.speed})
	if err != nil {
		return notRun(err.Error())
	}
	return j.scenario.Run(j.options).Record
}

// apiServer finds the API server of a run.
func apiServer(ctx context.Context, f runFlags) (*rest.Config, func() error, error) {
	if f.cluster != (clusterFlags{}) {
		config, err := f.cluster.config()
		if err == nil {
			err = live.IsFree(ctx, config)
		}
		return config, func() error { return live.Clean(context.WithoutCancel(ctx), config) }, err
	}
	c, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		return nil, nil, err
	}
	if err := launchCollector(ctx, c); err != nil {
		_ = c.Stop()
		return nil, nil, err
	}
	return c.Config(), c.Stop, nil
}

// launchCollector starts the controllers that a world needs of Kubernetes: nobody
// else collects garbage or ends namespaces. The others would take hosts without a
// kubelet for dead Nodes.
func launchCollector(ctx context.Context, c *controlplane.ControlPlane) error {
	if err := c.Launch(ctx, controlplane.ControllerManager, "--controllers=garbage-collector-controller,namespace-controller,serviceaccount-controller"); err != nil {
		return fmt.Errorf("start what collects garbage: %w", err)
	}
	return nil
}
