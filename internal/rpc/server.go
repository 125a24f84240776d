// SPDX-License-Identifier: Apache-2.0

package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	hav1 "github.com/adit-hv/adit/api/ha/v1"
)

// ServerOptions say where a Server listens and what it allows. Address or
// Socket must be set; both may be.
type ServerOptions struct {
	Service Service
	Log     logr.Logger

	// Address is a TCP address for agents of other machines, who show a
	// certificate of the authority in Files that names their host.
	Address string
	Files   Files

	// Socket is a path for a Unix socket. Who may open it may speak for any host:
	// its mode, 0600, is its only lock.
	Socket string

	// AtOnce is how many reports are read and handled at once; others wait for
	// their turn. Zero is 32.
	AtOnce int
	// Longest is how long one report may take, and how long a deadline a client
	// may ask for. Zero is 10 s.
	Longest time.Duration
}

// Server hears reports on one or two doors.
type Server struct {
	options ServerOptions
	turns   chan struct{}
	doors   []door
}

type door struct {
	listener net.Listener
	server   *grpc.Server
}

// Listen opens the doors. Nobody is answered before Start. A Server that is
// never started must be closed.
func Listen(o ServerOptions) (*Server, error) {
	if o.AtOnce == 0 {
		o.AtOnce = 32
	}
	if o.Longest == 0 {
		o.Longest = 10 * time.Second
	}
	s := &Server{options: o, turns: make(chan struct{}, o.AtOnce)}
	if o.Address == "" && o.Socket == "" {
		return nil, errors.New("listen for reports: no address and no socket")
	}
	if o.Address != "" {
		id, err := newIdentity(o.Files, o.Log)
		if err != nil {
			return nil, fmt.Errorf("listen for reports at %s: %w", o.Address, err)
		}
		listener, err := net.Listen("tcp", o.Address)
		if err != nil {
			return nil, fmt.Errorf("listen for reports: %w", err)
		}
		s.open(listener, handshakes{id})
	}
	if o.Socket != "" {
		listener, err := listenUnix(o.Socket)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("listen for reports: %w", err)
		}
		s.open(listener, insecure.NewCredentials())
	}
	return s, nil
}

func (s *Server) open(listener net.Listener, creds credentials.TransportCredentials) {
	server := grpc.NewServer(
		grpc.Creds(creds),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxSendMsgSize(maxResponse),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(4), // an agent has one report under way
		grpc.ConnectionTimeout(handshakeTime),
		grpc.StaticStreamWindowSize(64<<10), // and no measuring of bandwidth
		grpc.StaticConnWindowSize(64<<10),
		grpc.WriteBufferSize(buffer),
		grpc.ReadBufferSize(buffer),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: connectionIdle, MaxConnectionAge: connectionAge, MaxConnectionAgeGrace: handshakeTime,
			Time: serverPing, Timeout: pingTimeout,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAfter / 2}),
	)
	server.RegisterService(&description, s)
	s.doors = append(s.doors, door{listener, server})
}

// Address is where the Server listens for TCP, for when it was told port 0.
func (s *Server) Address() string {
	for _, d := range s.doors {
		if d.listener.Addr().Network() == "tcp" {
			return d.listener.Addr().String()
		}
	}
	return ""
}

// Start answers until ctx is done; then it ends what is under way, for a second
// at most. Each replica listens, whether it leads or not.
func (s *Server) Start(ctx context.Context) error {
	ended := make(chan error, len(s.doors))
	for _, d := range s.doors {
		go func() { ended <- d.server.Serve(d.listener) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended: // before anybody asked for it
	}
	cut := time.AfterFunc(time.Second, s.Close)
	defer cut.Stop()
	for _, d := range s.doors {
		d.server.GracefulStop()
	}
	return err
}

// NeedLeaderElection tells controller-runtime's manager to start it at once.
func (s *Server) NeedLeaderElection() bool { return false }

// Close ends it, whatever is under way.
func (s *Server) Close() {
	for _, d := range s.doors {
		d.server.Stop()
		_ = d.listener.Close() // of a server that never started
	}
}

// description serves Report as a stream of one message each way, which is the
// same on the wire: the handler of a plain call gets its message read, and so as
// many of them as there are connections may stand in memory.
var description = grpc.ServiceDesc{
	ServiceName: hav1.HighAvailability_ServiceDesc.ServiceName,
	HandlerType: (*any)(nil),
	Metadata:    hav1.HighAvailability_ServiceDesc.Metadata,
	Streams: []grpc.StreamDesc{{
		StreamName: "Report",
		Handler:    func(server any, stream grpc.ServerStream) error { return server.(*Server).take(stream) },
	}},
}

// take reads, handles and answers one report when its turn has come.
func (s *Server) take(stream grpc.ServerStream) (err error) {
	ctx := stream.Context()
	if by, ok := ctx.Deadline(); !ok || time.Until(by) > s.options.Longest {
		return status.Errorf(codes.InvalidArgument, "a report needs a deadline, of not more than %s", s.options.Longest)
	}
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	var report hav1.ReportRequest
	if err := stream.RecvMsg(&report); err != nil {
		return err
	}
	if err := mayReport(ctx, report.Host); err != nil {
		return err
	}
	// One host's report must not end the service for all others.
	defer func() {
		if p := recover(); p != nil {
			s.options.Log.Error(fmt.Errorf("panic: %v", p), "Dropped a report", "Hypervisor", report.Host, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "the service could not handle this report")
		}
	}()
	answer, err := s.options.Service.Report(ctx, &report)
	if err != nil {
		return err
	}
	return stream.SendMsg(answer)
}

// mayReport says whether who speaks may speak for a host.
func mayReport(ctx context.Context, host string) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return status.Error(codes.Unauthenticated, "nobody knows who speaks")
	}
	if host == "" {
		return status.Error(codes.InvalidArgument, "a report names its host")
	}
	if p.Addr.Network() == "unix" {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return status.Error(codes.Unauthenticated, "no certificate was shown")
	}
	if leaf := info.State.PeerCertificates[0]; !names(leaf, host) {
		return status.Errorf(codes.PermissionDenied, "the certificate of %q %q may not report for host %q", leaf.Subject.CommonName, leaf.DNSNames, host)
	}
	return nil
}
