// SPDX-License-Identifier: Apache-2.0

package hardware

import "time"

// MigrateOptions say where a domain goes and how.
type MigrateOptions struct {
	// ID names the migration, so that asking twice starts one job.
	ID string

	// Target is the peer's host name, Address the one its migration listener
	// has on the migration network ("" lets the implementation resolve it).
	Target  string
	Address string

	// BytesPerSecond bounds the transfer; 0 is unlimited.
	BytesPerSecond uint64

	// Downtime is the longest switch-over aimed at; 0 is QEMU's 300 ms.
	Downtime time.Duration

	AutoConverge bool
	PostCopy     bool // allow StartPostCopy
	Connections  int  // parallel connections; 0 or 1: one
	CopyStorage  bool // copy disks that the hosts do not share
	TLS          bool

	// Spec replaces the definition at the target (pinning, ports); nil keeps
	// the source's.
	Spec *DomainSpec
}

// JobType is the state of a job, in libvirt's words.
type JobType string

// The job types.
const (
	JobNone      JobType = "none"
	JobBounded   JobType = "bounded"
	JobUnbounded JobType = "unbounded" // runs, and nobody knows how long
	JobCompleted JobType = "completed"
	JobFailed    JobType = "failed"
	JobCancelled JobType = "cancelled"
)

// Operation is what a job does, in libvirt's words.
type Operation string

// The operations a job can have.
const (
	OperationUnknown        Operation = "unknown"
	OperationStart          Operation = "start"
	OperationSave           Operation = "save"
	OperationRestore        Operation = "restore"
	OperationMigrationIn    Operation = "migration_in"
	OperationMigrationOut   Operation = "migration_out"
	OperationSnapshot       Operation = "snapshot"
	OperationSnapshotRevert Operation = "snapshot_revert"
	OperationDump           Operation = "dump"
	OperationBackup         Operation = "backup"
	OperationSnapshotDelete Operation = "snapshot_delete"
)

// Job is a domain's job with the fields of libvirt's virDomainGetJobStats.
// Sizes are bytes, rates bytes a second, the dirty rate pages a second.
type Job struct {
	ID        string // MigrateOptions.ID; "" when not known
	Type      JobType
	Operation Operation
	Peer      string // the other host; "" when not known

	Elapsed   time.Duration
	Remaining time.Duration // an estimate; 0: not known
	Downtime  time.Duration // expected while running, measured when completed
	SetupTime time.Duration
	StartedAt time.Time

	DataTotal     uint64
	DataProcessed uint64
	DataRemaining uint64

	MemoryTotal            uint64
	MemoryProcessed        uint64
	MemoryRemaining        uint64
	MemoryConstantPages    uint64 // pages sent as a mark, zero pages mostly
	MemoryNormalPages      uint64
	MemoryNormalBytes      uint64
	MemoryBytesPerSecond   uint64
	MemoryDirtyRate        uint64 // pages a second
	MemoryPageSize         uint64
	MemoryIteration        uint64
	MemoryPostCopyRequests uint64

	DiskTotal          uint64
	DiskProcessed      uint64
	DiskRemaining      uint64
	DiskBytesPerSecond uint64

	AutoConvergeThrottle int // percent

	PostCopy bool // the switch to post-copy has happened
	Error    string
}

// Running reports whether the job is under way.
func (j Job) Running() bool { return j.Type == JobBounded || j.Type == JobUnbounded }
