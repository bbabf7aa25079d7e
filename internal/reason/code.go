package reason

import (
	"cmp"
	"embed"
	"fmt"
	"slices"
	"strconv"
)

// Code is one reason of the closed set. Its text form is TK and four digits; each has a row in the table below and a page
// (Page). Hundreds group them: 04 declarations, 05 host resources in general and files, 06 packages, 07 services, and
// instances and what runs them, 08 the agent itself, 09 command lines, 10 keys, certificates and tokens. A number is never given to
// another meaning.
type Code uint16

// The codes. What each means, what to do after it and how a program exits with it stand in the table in this file.
const (
	MalformedYAML        Code = 401
	DocumentTooLarge     Code = 402
	AnchorRefused        Code = 403
	DuplicateKey         Code = 404
	UnknownKind          Code = 405
	UnknownAPIVersion    Code = 406
	DeclarationUnread    Code = 407
	NothingDeclared      Code = 408
	WrongType            Code = 411
	UnknownField         Code = 412
	MissingField         Code = 413
	InvalidValue         Code = 414
	FieldNotAllowed      Code = 415
	NotExactlyOneType    Code = 416
	DuplicateName        Code = 420
	DuplicateClaim       Code = 421
	DanglingReference    Code = 422
	DependencyCycle      Code = 424
	TooManyResources     Code = 425
	PriorityConflict     Code = 426
	UnknownName          Code = 427
	MalformedExpression  Code = 428
	BodyTooLarge         Code = 429
	DuplicateDeclaration Code = 430
	LaterVersion         Code = 431

	NotChecked        Code = 500
	PermissionDenied  Code = 501
	UntrustedSymlink  Code = 502
	TypeInTheWay      Code = 503
	DiskFull          Code = 504
	QuotaExceeded     Code = 505
	ReadOnlyFS        Code = 506
	Immutable         Code = 507
	InputOutput       Code = 508
	CheckRejected     Code = 509
	CheckNotRun       Code = 510
	ConcurrentEdit    Code = 511
	UnknownOwner      Code = 512
	OwnerNeedsRoot    Code = 513
	MountPointFile    Code = 514
	DirectoryNotEmpty Code = 515
	ParentMissing     Code = 516
	NameTooLong       Code = 517
	SystemCallFailed  Code = 518
	BackupFailed      Code = 519
	RepairedDrift     Code = 520
	RepairedChange    Code = 521
	BlockedBy         Code = 530
	RateLimited       Code = 531
	RepairContended   Code = 532
	WhenFalse         Code = 533
	UnsupportedInRoot Code = 534
	Unwatched         Code = 536
	RemovalPending    Code = 538
	NotifyPending     Code = 539
	OperationTimeout  Code = 540
	InternalFault     Code = 541
	RestoreLost       Code = 542
	DriftTold         Code = 543

	AttributeUnsupported Code = 544
	AttributeRefused     Code = 545
	NoSELinux            Code = 546
	FragmentUntaken      Code = 547

	EditFileMissing Code = 550
	EditRefused     Code = 551

	PurgeOverLimit   Code = 553
	EntryRefused     Code = 554
	NoOldContent     Code = 555
	RestoreAmbiguous Code = 556

	PackageLock        Code = 601
	PackageNotFound    Code = 602
	PackageVersionGone Code = 603
	PackageToolFailed  Code = 604
	NoPackageManager   Code = 605
	PackageInterrupted Code = 606
	PackageHeld        Code = 607

	PackageDowngrade         Code = 608
	PackageAnswersRefused    Code = 609
	PackageOptionUnsupported Code = 610
	PackageListsOld          Code = 611

	PackageSourceUnreachable Code = 613
	PackageSourceUntrusted   Code = 614
	PackageSourceConflict    Code = 615

	AccountLock       Code = 620
	AccountBusy       Code = 621
	AccountToolFailed Code = 622
	NoAccountTools    Code = 623
	AccountTaken      Code = 624

	CommandFailed   Code = 630
	CommandNotRun   Code = 631
	CommandNoEffect Code = 632
	CommandBusy     Code = 633

	SettingUnknown     Code = 640
	SettingRefused     Code = 641
	SettingOverridden  Code = 642
	ModulesUnavailable Code = 643
	ModuleInUse        Code = 644
	UnitTaken          Code = 645

	MountPointMissing  Code = 650
	MountPointUnsafe   Code = 651
	MountPointTaken    Code = 652
	MountBusy          Code = 653
	MountSourceMissing Code = 654
	MountRefused       Code = 655
	MountReadOnly      Code = 656
	SwapUnprepared     Code = 657
	SwapNoRoom         Code = 658

	ObjectComing      Code = 660
	ObjectMissing     Code = 661
	ObjectRefused     Code = 662
	ContentMismatch   Code = 663
	SourceUntrusted   Code = 664
	SourceMissing     Code = 665
	ArchiveUnreadable Code = 666
	ArchiveRefused    Code = 667
	ArchiveTooLarge   Code = 668
	ObjectUnstored    Code = 669

	WindowShut  Code = 670
	WindowZone  Code = 671
	HoldInvalid Code = 672

	OwnFactsMalformed Code = 690
	OwnFactsUnsafe    Code = 691
	OwnFactsTooMany   Code = 692

	EndpointSilent Code = 695
	EndpointWrong  Code = 696

	NoSystemd         Code = 701
	UnitNotFound      Code = 702
	UnitMasked        Code = 703
	UnitJobFailed     Code = 704
	UnitJobTimeout    Code = 705
	UnitStartLimit    Code = 706
	UnitReloadFailed  Code = 707
	UnitNotInstalled  Code = 708
	BusDisconnected   Code = 709
	UnitEnableRefused Code = 710
	UnitBusy          Code = 711

	NoNodeFits      Code = 712
	InstanceRefused Code = 713
	GangIncomplete  Code = 714

	AgentNoProgram  Code = 720
	AgentNotService Code = 721
	AgentUnfit      Code = 722
	AgentPutBack    Code = 723
	AgentOnTrial    Code = 724

	RuntimeUnfit   Code = 730
	TaskRefused    Code = 731
	TaskNotStarted Code = 732
	TaskUnknown    Code = 733
	TaskBusy       Code = 734
	NetworkFailed  Code = 738

	TaskEnded    Code = 740
	ProbeFailed  Code = 741
	LeaseOver    Code = 742
	PortOccupied Code = 743
	VolumeGone   Code = 744

	RolloutFailed    Code = 750
	RolloutStuck     Code = 751
	Replaced         Code = 752
	ScaledDown       Code = 753
	NodeDrained      Code = 754
	Preempted        Code = 755
	PlacementChanged Code = 756
	CopySuperseded   Code = 757
	WorkloadDeleted  Code = 758
	DisruptionHeld   Code = 759
	DisruptionStuck  Code = 760

	NameUnservable    Code = 770
	InstanceNameTaken Code = 771
	NamesUnserved     Code = 772

	NoSamples    Code = 780
	ScaleBounded Code = 781

	AnotherAgent     Code = 801
	StateCorrupt     Code = 802
	StateNewer       Code = 803
	StateUnwritable  Code = 804
	AgentNotRunning  Code = 805
	ResourceUnknown  Code = 806
	RootNeeded       Code = 807
	WatchLimit       Code = 808
	WatchOverflow    Code = 809
	DeclarationStale Code = 810
	AnotherServer    Code = 811
	StoreUnreachable Code = 812
	BackupUnusable   Code = 813

	Usage        Code = 901
	Interrupted  Code = 902
	NotConverged Code = 903
	UnknownCode  Code = 904

	ImageRefused Code = 980

	TrustRefused       Code = 1001
	SignaturesMissing  Code = 1002
	CertificateRefused Code = 1003
	CertificateTime    Code = 1004
	TokenMalformed     Code = 1005
	TokenRefused       Code = 1006
	TokenTime          Code = 1007
	KeyFileUnsafe      Code = 1008
	KeyFileDamaged     Code = 1009
	SealBroken         Code = 1010
	SealKeyUnknown     Code = 1011
	HeadRefused        Code = 1012
	StatementRefused   Code = 1013

	ContentNeedsServer Code = 1020
	SecretKeyMissing   Code = 1021
	DeletionsWithheld  Code = 1022
	StateQuarantined   Code = 1023

	NameTaken          Code = 1030
	IdentityGone       Code = 1031
	JoinRequestInvalid Code = 1032

	CallMalformed    Code = 1040
	NotListed        Code = 1041
	RootUnknown      Code = 1042
	TransferBusy     Code = 1043
	HostNotConnected Code = 1044
	AnswerRefused    Code = 1045

	TransferWrong Code = 1050
	WrongCluster  Code = 1051
	PlaceUnusable Code = 1052

	HostJoined      Code = 1060
	HostNotJoined   Code = 1061
	TryNotConfirmed Code = 1062
	ResourceHeld    Code = 1063
	ResourceExpired Code = 1064

	LayerReference    Code = 1070
	RevisionUnusable  Code = 1071
	RollbackSuspected Code = 1072
	SigningKeyMissing Code = 1073
	ServerBehind      Code = 1074
	BundleMissing     Code = 1075
	BundleRefused     Code = 1076
	LeadLost          Code = 1077
	NoLeader          Code = 1078

	ServerUnreachable Code = 1101
	NotAuthenticated  Code = 1102
	NotAllowed        Code = 1103
	Conflict          Code = 1104
	AlreadyExists     Code = 1105
	Stalled           Code = 1106
	DeadlineOver      Code = 1107
	ObjectUnknown     Code = 1108

	RepositoryAddress     Code = 1110
	RepositoryUnreachable Code = 1111
	RepositoryUnknown     Code = 1112
	RepositoryAuth        Code = 1113
	RepositoryUntrusted   Code = 1114
	RefUnknown            Code = 1115
	RepositoryLimit       Code = 1116
	RepositoryContent     Code = 1117
	RepositoryCopy        Code = 1118
	SignatureRefused      Code = 1119
	GitUnusable           Code = 1120

	KustomizationRefused Code = 1130
	KustomizationFailed  Code = 1131
	RenderLimit          Code = 1132
	WebhookRefused       Code = 1133
	WebhookMalformed     Code = 1134
	ForgeUnreachable     Code = 1135
	ForgeRefused         Code = 1136
	SourceIncomplete     Code = 1137
)

// Entry is what the closed set says about one code.
type Entry struct {
	Code    Code
	Title   string  // a few words, lower case
	Outcome Outcome // of a resource that ends with this code; Unknown where the code is not about a resource
	Detail  Detail
	Retry   Retry
	Exit    Exit
	HTTP    int // status of an API answer with this code
}

var table = []Entry{
	{MalformedYAML, "malformed YAML", Unknown, "", Never, ExitUsage, 400},
	{DocumentTooLarge, "declaration too large", Unknown, "", Never, ExitUsage, 413},
	{AnchorRefused, "YAML anchor, alias, tag or merge key refused", Unknown, "", Never, ExitUsage, 400},
	{DuplicateKey, "key given twice", Unknown, "", Never, ExitUsage, 400},
	{UnknownKind, "unknown kind", Unknown, "", Never, ExitUsage, 404},
	{UnknownAPIVersion, "unknown apiVersion", Unknown, "", Never, ExitUsage, 400},
	{DeclarationUnread, "declaration cannot be read", Unknown, "", BackOff, ExitUsage, 400},
	{NothingDeclared, "nothing declared", Unknown, "", Never, ExitUsage, 400},
	{WrongType, "wrong type", Unknown, "", Never, ExitUsage, 400},
	{UnknownField, "unknown field", Unknown, "", Never, ExitUsage, 400},
	{MissingField, "required field missing", Unknown, "", Never, ExitUsage, 422},
	{InvalidValue, "invalid value", Failed, Invalid, Never, ExitUsage, 422},
	{FieldNotAllowed, "field not allowed here", Unknown, "", Never, ExitUsage, 422},
	{NotExactlyOneType, "not exactly one resource type", Unknown, "", Never, ExitUsage, 422},
	{DuplicateName, "name used twice", Unknown, "", Never, ExitUsage, 422},
	{DuplicateClaim, "two resources claim one thing", Unknown, "", Never, ExitUsage, 422},
	{DanglingReference, "reference to nothing", Unknown, "", Never, ExitUsage, 422},
	{DependencyCycle, "dependency cycle", Unknown, "", Never, ExitUsage, 422},
	{TooManyResources, "too many resources", Unknown, "", Never, ExitUsage, 422},
	{PriorityConflict, "equal priority, different content", Unknown, "", Never, ExitConflict, 409},
	{UnknownName, "unknown name in an expression", Unknown, "", Never, ExitUsage, 422},
	{MalformedExpression, "malformed expression", Unknown, "", Never, ExitUsage, 422},
	{BodyTooLarge, "resource too large", Unknown, "", Never, ExitUsage, 422},
	{DuplicateDeclaration, "declared twice", Unknown, "", Never, ExitUsage, 409},
	{LaterVersion, "declared for a later version", Failed, Unsupported, Never, ExitFailed, 501},

	{NotChecked, "not checked yet", Unknown, "", Soon, ExitFailed, 0},
	{PermissionDenied, "permission denied", Failed, Denied, BackOff, ExitNotAllowed, 403},
	{UntrustedSymlink, "symlink on the way is not trusted", Failed, Denied, BackOff, ExitNotAllowed, 403},
	{TypeInTheWay, "something of another type is in the way", Failed, Denied, BackOff, ExitFailed, 409},
	{DiskFull, "no space left on the device", Failed, DetailError, BackOff, ExitFailed, 507},
	{QuotaExceeded, "disk quota exceeded", Failed, DetailError, BackOff, ExitFailed, 507},
	{ReadOnlyFS, "read-only file system", Failed, DetailError, BackOff, ExitFailed, 500},
	{Immutable, "immutable or append-only attribute", Failed, Denied, BackOff, ExitFailed, 403},
	{InputOutput, "input/output error", Failed, DetailError, BackOff, ExitFailed, 500},
	{CheckRejected, "check command rejected the content", Failed, Invalid, BackOff, ExitFailed, 422},
	{CheckNotRun, "check command could not run", Failed, DetailError, BackOff, ExitFailed, 500},
	{ConcurrentEdit, "changed by somebody else in the same moment", Failed, DetailError, Soon, ExitFailed, 409},
	{UnknownOwner, "unknown user or group", Failed, Invalid, BackOff, ExitFailed, 422},
	{OwnerNeedsRoot, "owner or group can be set by root only", Failed, Denied, Never, ExitNotAllowed, 403},
	{MountPointFile, "file is a mount point", Failed, Denied, BackOff, ExitFailed, 409},
	{DirectoryNotEmpty, "directory is not empty", Failed, Denied, BackOff, ExitFailed, 409},
	{ParentMissing, "parent directory missing", Failed, DetailError, BackOff, ExitFailed, 404},
	{NameTooLong, "name too long", Failed, Invalid, Never, ExitFailed, 422},
	{SystemCallFailed, "system call failed", Failed, DetailError, BackOff, ExitFailed, 500},
	{BackupFailed, "backup could not be stored", Failed, DetailError, BackOff, ExitFailed, 507},
	{RepairedDrift, "repaired after drift", Repaired, Drift, Never, ExitOK, 200},
	{RepairedChange, "made as declared", Repaired, Change, Never, ExitOK, 200},
	{BlockedBy, "something it requires is not converged", Blocked, "", Never, ExitFailed, 424},
	{RateLimited, "rate limit", Deferred, Rate, WaitThen, ExitStalled, 429},
	{RepairContended, "somebody else keeps changing it back", Contended, "", WaitThen, ExitFailed, 409},
	{WhenFalse, "condition is false on this host", NotApplicable, "", Never, ExitOK, 200},
	{UnsupportedInRoot, "not possible under --root", Failed, Unsupported, Never, ExitFailed, 501},
	{Unwatched, "not watched by the kernel, checked slowly", Unknown, "", Never, ExitOK, 200},
	{RemovalPending, "removal is pending", Unknown, "", BackOff, ExitFailed, 200},
	{NotifyPending, "notification is pending", Unknown, "", BackOff, ExitFailed, 200},
	{OperationTimeout, "took too long", Failed, Timeout, BackOff, ExitDeadline, 504},
	{InternalFault, "fault in tako", Failed, DetailError, BackOff, ExitFailed, 500},
	{RestoreLost, "what was there before is not known any more", Failed, DetailError, Never, ExitFailed, 410},
	{DriftTold, "has drifted, and is only watched", Deferred, Told, Never, ExitFailed, 409},

	{AttributeUnsupported, "no such attributes on the file system", Failed, Unsupported, BackOff, ExitFailed, 501},
	{AttributeRefused, "attribute refused", Failed, Invalid, BackOff, ExitFailed, 422},
	{NoSELinux, "no SELinux", Failed, Unsupported, Never, ExitFailed, 501},
	{FragmentUntaken, "no file takes the piece", Failed, Invalid, Never, ExitFailed, 422},

	{EditFileMissing, "file to edit is missing", Failed, DetailError, BackOff, ExitFailed, 404},
	{EditRefused, "file cannot be edited", Failed, Invalid, BackOff, ExitFailed, 422},

	{PurgeOverLimit, "more to purge than may go at once", Failed, Denied, BackOff, ExitFailed, 409},
	{EntryRefused, "something below a directory is left alone", Failed, Denied, BackOff, ExitFailed, 409},
	{NoOldContent, "no such old content", Unknown, "", Never, ExitNotFound, 404},
	{RestoreAmbiguous, "several old contents are meant", Unknown, "", Never, ExitUsage, 409},

	{PackageLock, "package database is locked", Deferred, Lock, WaitThen, ExitStalled, 423},
	{PackageNotFound, "package in no repository", Failed, Invalid, WaitThen, ExitFailed, 404},
	{PackageVersionGone, "package version in no repository", Failed, Invalid, WaitThen, ExitFailed, 404},
	{PackageToolFailed, "package tool failed", Failed, DetailError, BackOff, ExitFailed, 500},
	{NoPackageManager, "no package manager", Failed, Unsupported, Never, ExitFailed, 501},
	{PackageInterrupted, "package database interrupted half-way", Failed, DetailError, BackOff, ExitFailed, 500},
	{PackageHeld, "package is held", Failed, Denied, BackOff, ExitFailed, 409},
	{PackageDowngrade, "package would go back to an older version", Failed, Denied, BackOff, ExitFailed, 409},
	{PackageAnswersRefused, "answers to a package's questions were not taken", Failed, DetailError, BackOff, ExitFailed, 422},
	{PackageOptionUnsupported, "package manager cannot do that", Failed, Unsupported, BackOff, ExitFailed, 501},
	{PackageListsOld, "package lists are out of date", Failed, DetailError, BackOff, ExitFailed, 503},
	{PackageSourceUnreachable, "repository cannot be fetched", Failed, DetailError, BackOff, ExitFailed, 502},
	{PackageSourceUntrusted, "repository is not signed by its keys", Failed, Denied, BackOff, ExitFailed, 403},
	{PackageSourceConflict, "another file says otherwise of the repository", Failed, Denied, BackOff, ExitFailed, 409},

	{AccountLock, "account files are locked", Deferred, Lock, WaitThen, ExitStalled, 423},
	{AccountBusy, "account is in use", Failed, Denied, BackOff, ExitFailed, 409},
	{AccountToolFailed, "account tool failed", Failed, DetailError, BackOff, ExitFailed, 500},
	{NoAccountTools, "no account tools", Failed, Unsupported, Never, ExitFailed, 501},
	{AccountTaken, "number or name is somebody else's", Failed, Invalid, BackOff, ExitFailed, 409},

	{CommandFailed, "command failed", Failed, DetailError, BackOff, ExitFailed, 500},
	{CommandNotRun, "command could not be run", Failed, DetailError, BackOff, ExitFailed, 500},
	{CommandNoEffect, "command succeeded without effect", Failed, DetailError, BackOff, ExitFailed, 500},
	{CommandBusy, "the command's last run has not ended", Deferred, Lock, WaitThen, ExitStalled, 423},

	{SettingUnknown, "host knows no such setting", Failed, Invalid, BackOff, ExitFailed, 404},
	{SettingRefused, "setting was not taken", Failed, Denied, BackOff, ExitFailed, 403},
	{SettingOverridden, "another file overrides the setting at boot", Failed, Denied, BackOff, ExitFailed, 409},
	{ModulesUnavailable, "kernel modules cannot be loaded here", Failed, Unsupported, BackOff, ExitFailed, 501},
	{ModuleInUse, "kernel module is in use", Failed, Denied, BackOff, ExitFailed, 409},
	{UnitTaken, "unit is somebody else's", Failed, Denied, BackOff, ExitFailed, 409},
	{MountPointMissing, "mount point is missing", Failed, Invalid, BackOff, ExitFailed, 404},
	{MountPointUnsafe, "mount point can be moved by others", Failed, Denied, BackOff, ExitFailed, 403},
	{MountPointTaken, "something else is mounted there", Failed, Denied, BackOff, ExitFailed, 409},
	{MountBusy, "file system is in use", Failed, Denied, BackOff, ExitFailed, 409},
	{MountSourceMissing, "what to mount is not there", Failed, Invalid, BackOff, ExitFailed, 404},
	{MountRefused, "not mounted", Failed, DetailError, BackOff, ExitFailed, 502},
	{MountReadOnly, "kernel has made the file system read-only", Failed, Denied, BackOff, ExitFailed, 409},
	{SwapUnprepared, "not made for swapping", Failed, Denied, BackOff, ExitFailed, 409},
	{SwapNoRoom, "what is swapped out does not fit into memory", Failed, Denied, BackOff, ExitFailed, 507},

	{ObjectComing, "content is on its way", Deferred, Coming, WaitThen, ExitStalled, 503},
	{ObjectMissing, "content is not there", Failed, DetailError, BackOff, ExitNotFound, 404},
	{ObjectRefused, "content is not for this host", Failed, Denied, BackOff, ExitNotAllowed, 403},
	{ContentMismatch, "content is not what was named", Failed, DetailError, BackOff, ExitFailed, 422},
	{SourceUntrusted, "others may change the source", Failed, Denied, BackOff, ExitNotAllowed, 403},
	{SourceMissing, "source file is missing", Failed, DetailError, BackOff, ExitFailed, 404},
	{ArchiveUnreadable, "archive cannot be read", Failed, Invalid, BackOff, ExitFailed, 422},
	{ArchiveRefused, "archive holds what is not unpacked", Failed, Denied, BackOff, ExitFailed, 422},
	{ArchiveTooLarge, "archive exceeds a limit", Failed, Invalid, BackOff, ExitFailed, 413},
	{ObjectUnstored, "content could not be stored", Failed, DetailError, BackOff, ExitFailed, 507},

	{WindowShut, "outside of its window", Deferred, Window, WaitThen, ExitStalled, 423},
	{WindowZone, "the window's time zone is not known on this host", Failed, Unsupported, BackOff, ExitFailed, 422},
	{HoldInvalid, "no hold can be made so", Failed, Invalid, Never, ExitUsage, 422},

	{OwnFactsMalformed, "own facts cannot be read", Failed, Invalid, Never, ExitFailed, 422},
	{OwnFactsUnsafe, "own facts can be changed by others", Failed, Denied, Never, ExitFailed, 403},
	{OwnFactsTooMany, "too many own facts", Failed, Invalid, Never, ExitFailed, 422},

	{EndpointSilent, "endpoint does not answer", Deferred, Endpoint, WaitThen, ExitStalled, 503},
	{EndpointWrong, "endpoint answers otherwise than declared", Deferred, Endpoint, WaitThen, ExitStalled, 502},

	{NoSystemd, "no systemd", Failed, Unsupported, Never, ExitFailed, 501},
	{UnitNotFound, "unit not found", Failed, Invalid, BackOff, ExitFailed, 404},
	{UnitMasked, "unit is masked", Failed, Denied, BackOff, ExitFailed, 409},
	{UnitJobFailed, "unit did not reach the declared state", Failed, DetailError, BackOff, ExitFailed, 500},
	{UnitJobTimeout, "unit job took too long", Failed, Timeout, BackOff, ExitDeadline, 504},
	{UnitStartLimit, "unit hit its start limit", Failed, DetailError, BackOff, ExitFailed, 429},
	{UnitReloadFailed, "daemon-reload failed", Failed, DetailError, BackOff, ExitFailed, 500},
	{UnitNotInstalled, "unit file cannot be enabled or disabled", Failed, Invalid, BackOff, ExitFailed, 422},
	{BusDisconnected, "system bus is not reachable", Failed, DetailError, BackOff, ExitFailed, 503},
	{UnitEnableRefused, "systemd refused to enable or disable the unit", Failed, DetailError, BackOff, ExitFailed, 500},
	{UnitBusy, "somebody else is busy with the unit", Deferred, Lock, WaitThen, ExitStalled, 423},

	{NoNodeFits, "no node takes the instance", Unknown, "", WaitThen, ExitStalled, 503},
	{InstanceRefused, "the node does not take the instance", Unknown, "", Never, ExitFailed, 409},
	{GangIncomplete, "there is no room for all instances of the gang at once", Unknown, "", WaitThen, ExitStalled, 503},

	{AgentNoProgram, "no program for this machine", Failed, Unsupported, Never, ExitFailed, 501},
	{AgentNotService, "the agent is not run by its unit", Failed, Unsupported, BackOff, ExitFailed, 501},
	{AgentUnfit, "the program does not fit this host", Failed, Invalid, BackOff, ExitFailed, 422},
	{AgentPutBack, "the program was put back", Failed, DetailError, Never, ExitFailed, 500},
	{AgentOnTrial, "the program is on trial", Deferred, Lock, WaitThen, ExitStalled, 423},

	{RuntimeUnfit, "runtime cannot do this on this host", Failed, Unsupported, Never, ExitFailed, 501},
	{TaskRefused, "task cannot be run as it is given", Failed, Invalid, Never, ExitFailed, 422},
	{TaskNotStarted, "task could not be started", Failed, DetailError, BackOff, ExitFailed, 500},
	{TaskUnknown, "runtime knows no such task", Unknown, "", Never, ExitNotFound, 404},
	{TaskBusy, "task has not ended yet", Unknown, "", BackOff, ExitConflict, 409},
	{NetworkFailed, "network of an instance could not be made or taken away", Failed, DetailError, BackOff, ExitFailed, 500},

	{TaskEnded, "task has ended", Failed, DetailError, BackOff, ExitFailed, 500},
	{ProbeFailed, "probe says no", Failed, DetailError, BackOff, ExitFailed, 503},
	{LeaseOver, "no server was heard for too long", Deferred, Held, WaitThen, ExitStalled, 503},
	{PortOccupied, "port is taken", Failed, DetailError, Never, ExitConflict, 409},
	{VolumeGone, "volume is not there any more", Failed, DetailError, BackOff, ExitNotFound, 404},

	{RolloutFailed, "a revision failed while it was rolled out", Unknown, "", Never, ExitFailed, 409},
	{RolloutStuck, "rollout does not go on", Unknown, "", Never, ExitStalled, 409},
	{Replaced, "another revision takes its place", Unknown, "", Never, ExitOK, 200},
	{ScaledDown, "more instances than are wanted", Unknown, "", Never, ExitOK, 200},
	{NodeDrained, "its node is drained", Unknown, "", Never, ExitOK, 200},
	{Preempted, "room is needed for a higher priority", Unknown, "", Never, ExitOK, 200},
	{PlacementChanged, "the node is not one for it any more", Unknown, "", Never, ExitOK, 200},
	{CopySuperseded, "another copy of the instance stays", Unknown, "", Never, ExitOK, 200},
	{WorkloadDeleted, "the workload was deleted", Unknown, "", Never, ExitOK, 200},
	{DisruptionHeld, "disruption budget allows no more", Deferred, Held, WaitThen, ExitStalled, 409},
	{DisruptionStuck, "disruption budget allows no more, and nothing comes that would change that", Unknown, "", Never, ExitStalled, 409},

	{NameUnservable, "cannot be a name of DNS", Failed, Invalid, Never, ExitFailed, 422},
	{InstanceNameTaken, "an instance of another workload has the name", Failed, Invalid, Never, ExitConflict, 409},
	{NamesUnserved, "names are not served at an address", Failed, DetailError, BackOff, ExitFailed, 500},

	{NoSamples, "what is to be measured has no samples", Unknown, "", BackOff, ExitStalled, 503},
	{ScaleBounded, "more instances are needed than there may be", Deferred, Held, WaitThen, ExitStalled, 409},

	{AnotherAgent, "another agent is running on this state", Unknown, "", Never, ExitConflict, 409},
	{StateCorrupt, "state file is corrupt", Failed, DetailError, BackOff, ExitFailed, 500},
	{StateNewer, "state was written by a newer version", Unknown, "", Never, ExitFailed, 409},
	{StateUnwritable, "state directory cannot be written", Failed, DetailError, BackOff, ExitFailed, 500},
	{AgentNotRunning, "agent is not running", Unknown, "", Never, ExitUnreachable, 503},
	{ResourceUnknown, "no such resource", Unknown, "", Never, ExitNotFound, 404},
	{RootNeeded, "needs root or --root", Unknown, "", Never, ExitNotAllowed, 403},
	{WatchLimit, "kernel limit on watches reached", Unknown, "", BackOff, ExitOK, 503},
	{WatchOverflow, "kernel event queue overflowed", Unknown, "", Never, ExitOK, 503},
	{DeclarationStale, "new declaration refused, the last good one is enforced", Unknown, "", Never, ExitUsage, 409},
	{AnotherServer, "another server is running on this data directory", Unknown, "", Never, ExitConflict, 409},
	{StoreUnreachable, "etcd does not answer", Unknown, "", BackOff, ExitUnreachable, 503},
	{BackupUnusable, "backup of the server cannot be written or restored", Unknown, "", Never, ExitFailed, 422},

	{Usage, "wrong usage", Unknown, "", Never, ExitUsage, 400},
	{Interrupted, "interrupted", Unknown, "", Never, ExitFailed, 499},
	{NotConverged, "not converged", Unknown, "", Never, ExitFailed, 500},
	{UnknownCode, "no such code", Unknown, "", Never, ExitNotFound, 404},

	{ImageRefused, "image cannot be used", Failed, Invalid, Never, ExitFailed, 422},

	{TrustRefused, "trust document refused", Unknown, "", Never, ExitNotAllowed, 403},
	{SignaturesMissing, "signatures of root keys missing", Unknown, "", Never, ExitConflict, 409},
	{CertificateRefused, "certificate refused", Unknown, "", Never, ExitNotAllowed, 401},
	{CertificateTime, "certificate is not valid at this time", Unknown, "", BackOff, ExitNotAllowed, 401},
	{TokenMalformed, "malformed token", Unknown, "", Never, ExitNotAllowed, 401},
	{TokenRefused, "token refused", Unknown, "", Never, ExitNotAllowed, 401},
	{TokenTime, "token is not valid at this time", Unknown, "", BackOff, ExitNotAllowed, 401},
	{KeyFileUnsafe, "key file is not private", Unknown, "", Never, ExitNotAllowed, 500},
	{KeyFileDamaged, "key file is missing or damaged", Unknown, "", Never, ExitFailed, 500},
	{SealBroken, "sealed data cannot be opened", Unknown, "", Never, ExitFailed, 500},
	{SealKeyUnknown, "sealed with another key", Unknown, "", Never, ExitFailed, 500},
	{HeadRefused, "signed state refused", Unknown, "", Never, ExitNotAllowed, 403},
	{StatementRefused, "layer statement does not count here", Unknown, "", Never, ExitConflict, 409},

	{ContentNeedsServer, "content comes from a server only", Failed, Unsupported, Never, ExitFailed, 501},
	{SecretKeyMissing, "key to a secret is missing", Failed, DetailError, BackOff, ExitFailed, 503},
	{DeletionsWithheld, "update withheld, because it deletes much", Unknown, "", Never, ExitFailed, 409},
	{StateQuarantined, "state quarantined, because the agent died of it", Unknown, "", Never, ExitFailed, 500},

	{NameTaken, "another host has this name", Unknown, "", Never, ExitConflict, 409},
	{IdentityGone, "host is not this node any more", Unknown, "", Never, ExitNotAllowed, 401},
	{JoinRequestInvalid, "request to join is not valid", Unknown, "", Never, ExitFailed, 422},

	{CallMalformed, "malformed call of a host", Unknown, "", Never, ExitFailed, 400},
	{NotListed, "not in the catalog of this node", Unknown, "", Never, ExitNotAllowed, 403},
	{RootUnknown, "state is not known here any more", Unknown, "", BackOff, ExitFailed, 410},
	{TransferBusy, "too many transfers at once", Unknown, "", WaitThen, ExitUnreachable, 503},
	{HostNotConnected, "host is not connected", Unknown, "", BackOff, ExitUnreachable, 503},
	{AnswerRefused, "host does not answer this question", Unknown, "", Never, ExitFailed, 422},

	{TransferWrong, "what came is not what was signed", Unknown, "", BackOff, ExitFailed, 502},
	{WrongCluster, "server is not of the cluster of the join line", Unknown, "", Never, ExitNotAllowed, 403},
	{PlaceUnusable, "nothing that this host can use is there", Unknown, "", Never, ExitFailed, 422},

	{HostJoined, "host belongs to a cluster", Unknown, "", Never, ExitConflict, 409},
	{HostNotJoined, "host belongs to no cluster", Unknown, "", Never, ExitFailed, 409},
	{TryNotConfirmed, "trial not confirmed in time, fell back", Unknown, "", Never, ExitFailed, 409},
	{ResourceHeld, "held by a person", Deferred, Held, WaitThen, ExitStalled, 423},
	{ResourceExpired, "expired: the servers were not heard for too long", NotApplicable, "", Never, ExitNotFound, 404},

	{LayerReference, "value that a file takes its content from cannot be used", Unknown, "", Never, ExitFailed, 422},
	{RevisionUnusable, "revision cannot be used", Unknown, "", Never, ExitFailed, 422},
	{RollbackSuspected, "store is older than what hosts have been given", Unknown, "", BackOff, ExitConflict, 409},
	{SigningKeyMissing, "no key may sign heads now", Unknown, "", BackOff, ExitFailed, 503},
	{ServerBehind, "server has not seen yet what another one has signed", Unknown, "", WaitThen, ExitUnreachable, 409},
	{BundleMissing, "bundle is not on this server", Unknown, "", Never, ExitNotFound, 404},
	{BundleRefused, "bundle cannot be accepted", Unknown, "", Never, ExitFailed, 422},
	{LeadLost, "server does not lead any more", Unknown, "", BackOff, ExitUnreachable, 503},
	{NoLeader, "no server leads at the moment", Unknown, "", WaitThen, ExitUnreachable, 503},

	{ServerUnreachable, "server does not answer", Unknown, "", BackOff, ExitUnreachable, 503},
	{NotAuthenticated, "server does not know who asks", Unknown, "", Never, ExitNotAllowed, 401},
	{NotAllowed, "not allowed", Unknown, "", Never, ExitNotAllowed, 403},
	{Conflict, "object was changed by somebody else", Unknown, "", Never, ExitConflict, 409},
	{AlreadyExists, "object is there already", Unknown, "", Never, ExitConflict, 409},
	{Stalled, "what is waited for cannot come", Unknown, "", Never, ExitStalled, 409},
	{DeadlineOver, "not within the time given", Unknown, "", Never, ExitDeadline, 504},
	{ObjectUnknown, "no such object", Unknown, "", Never, ExitNotFound, 404},

	{RepositoryAddress, "address of a repository is not allowed", Unknown, "", Never, ExitUsage, 422},
	{RepositoryUnreachable, "repository does not answer", Unknown, "", BackOff, ExitUnreachable, 503},
	{RepositoryUnknown, "no such repository", Unknown, "", BackOff, ExitNotFound, 404},
	{RepositoryAuth, "repository refuses the credentials", Unknown, "", BackOff, ExitNotAllowed, 403},
	{RepositoryUntrusted, "server of the repository is not the one that is trusted", Unknown, "", BackOff, ExitNotAllowed, 403},
	{RefUnknown, "no such ref or path in the repository", Unknown, "", BackOff, ExitNotFound, 404},
	{RepositoryLimit, "repository exceeds a limit", Unknown, "", Never, ExitFailed, 413},
	{RepositoryContent, "content of the repository refused", Unknown, "", Never, ExitFailed, 422},
	{RepositoryCopy, "copy of the repository is damaged or not complete", Unknown, "", Soon, ExitFailed, 500},
	{SignatureRefused, "signature of a commit or tag refused", Unknown, "", Never, ExitNotAllowed, 403},
	{GitUnusable, "git program cannot be run", Unknown, "", BackOff, ExitFailed, 503},

	{KustomizationRefused, "kustomization asks for what is not in its repository", Unknown, "", Never, ExitUsage, 422},
	{KustomizationFailed, "kustomization cannot be built", Unknown, "", Never, ExitUsage, 422},
	{RenderLimit, "more than a Source may have", Unknown, "", Never, ExitUsage, 413},
	{WebhookRefused, "webhook is not signed as agreed", Unknown, "", Never, ExitNotAllowed, 401},
	{WebhookMalformed, "webhook cannot be read", Unknown, "", Never, ExitFailed, 400},
	{ForgeUnreachable, "forge does not answer", Unknown, "", BackOff, ExitUnreachable, 502},
	{ForgeRefused, "forge refuses the commit status", Unknown, "", Never, ExitNotAllowed, 502},
	{SourceIncomplete, "what a source names is not there", Unknown, "", BackOff, ExitNotFound, 404},
}

// String returns the code's text form, for example TK0412.
func (c Code) String() string { return fmt.Sprintf("TK%04d", uint16(c)) }

// MarshalText writes the text form; the zero code is written as the empty text, so that it can be left out.
func (c Code) MarshalText() ([]byte, error) {
	if c == 0 {
		return nil, nil
	}
	return []byte(c.String()), nil
}

// UnmarshalText reads the text form; see ParseCode.
func (c *Code) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*c = 0
		return nil
	}
	v, err := ParseCode(string(b))
	if err != nil {
		return err
	}
	*c = v
	return nil
}

// ParseCode reads TKnnnn in any letter case. The code must be of the set.
func ParseCode(s string) (Code, error) {
	if len(s) == 6 && (s[0]|0x20) == 't' && (s[1]|0x20) == 'k' {
		if n, err := strconv.ParseUint(s[2:], 10, 16); err == nil {
			if _, ok := Lookup(Code(n)); ok {
				return Code(n), nil
			}
		}
	}
	return 0, &Error{Code: UnknownCode, Doing: fmt.Sprintf("look up code %q", s), Hint: "codes look like TK0412"}
}

// Lookup returns the row of a code.
func Lookup(c Code) (Entry, bool) {
	i, ok := slices.BinarySearchFunc(table, c, func(e Entry, c Code) int { return cmp.Compare(e.Code, c) })
	if !ok {
		return Entry{}, false
	}
	return table[i], true
}

// All returns every row, by code. The caller owns the slice.
func All() []Entry { return slices.Clone(table) }

//go:embed pages
var pages embed.FS

// Page returns the page of a code: Markdown that says what happened, why, and what to do. Every code has one.
func Page(c Code) (string, error) {
	b, err := pages.ReadFile("pages/" + c.String() + ".md")
	if err != nil {
		return "", &Error{Code: UnknownCode, Doing: "read the page of " + c.String(), Cause: err}
	}
	return string(b), nil
}
