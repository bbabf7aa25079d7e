package core

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/run"
	life "tako.dev/tako/internal/run/core"
	"tako.dev/tako/internal/scheduler/fit"
)

const (
	// recordSchema is the form of records that Encode writes.
	recordSchema = 1
	// recordMax bounds an encoded record: 16 tasks of 8 KiB, and as much again for ports and pieces of hardware.
	recordMax = 256 << 10
	// tasksMax is how many tasks a template may have, and portsMax how many ports all of them.
	tasksMax = 16
	portsMax = 1024
	// messageMax bounds the words of a failure, in bytes.
	messageMax = 1024
)

// Record is what must be known of an instance when the agent begins again.
type Record struct {
	Schema   uint             `cbor:"1,keyasint"`
	Instance catalog.Instance `cbor:"2,keyasint"`           // as it was wanted last
	Stop     bool             `cbor:"3,keyasint,omitempty"` // it is to end; never taken back
	Over     bool             `cbor:"4,keyasint,omitempty"` // it has ended, or was refused; never taken back
	Attempt  uint32           `cbor:"5,keyasint,omitempty"` // the largest that was told
	Failure  *Failure         `cbor:"6,keyasint,omitempty"` // why it is ended, or was refused
	// Held is what it holds of the host, from its admission until it is over.
	Held  *Holding `cbor:"7,keyasint,omitempty"`
	Bound bool     `cbor:"8,keyasint,omitempty"` // Ports are known
	// Ports are the numbers at the host, by the names of ports.
	Ports   map[string]int32 `cbor:"9,keyasint,omitempty"`
	Runtime workload.Runtime `cbor:"10,keyasint,omitempty"`
	Tasks   []TaskRecord     `cbor:"11,keyasint,omitempty"` // in the order of the template
}

// Holding is what an instance holds of its host.
type Holding struct {
	Amounts fit.Amounts         `cbor:"1,keyasint"`
	Ports   []fit.Port          `cbor:"2,keyasint,omitempty"`
	Devices map[string][]string `cbor:"3,keyasint,omitempty"` // names of the pieces by kind
}

// TaskRecord is one task. Signal, Grace and Delay are for ending it where its template is not known any more.
type TaskRecord struct {
	Name   string     `cbor:"1,keyasint"`
	State  []byte     `cbor:"2,keyasint,omitempty"` // as run/core encodes it
	Signal run.Signal `cbor:"3,keyasint,omitempty"`
	Grace  int64      `cbor:"4,keyasint,omitempty"` // ns
	Delay  int64      `cbor:"5,keyasint,omitempty"` // ns, before Signal
}

// Failure is why an instance does not work.
type Failure struct {
	Code    reason.Code `cbor:"1,keyasint"`
	Message string      `cbor:"2,keyasint,omitempty"`
	OfNode  bool        `cbor:"3,keyasint,omitempty"` // another node may take it
}

// failureOf is an error as a failure.
func failureOf(err *reason.Error, ofNode bool) *Failure {
	return &Failure{Code: err.Code, Message: clip(err.Error(), messageMax), OfNode: ofNode}
}

var encoding, decoding = modes()

func modes() (cbor.EncMode, cbor.DecMode) {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(fmt.Sprintf("instances: encoding options of the CBOR library: %v", err))
	}
	dec, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		MaxNestedLevels: 8, MaxArrayElements: 4 * portsMax, MaxMapPairs: 4 * portsMax,
	}.DecMode()
	if err != nil {
		panic(fmt.Sprintf("instances: decoding options of the CBOR library: %v", err))
	}
	return enc, dec
}

// Encode is the record as bytes.
func (r *Record) encode() ([]byte, error) {
	r.Schema = recordSchema
	b, err := encoding.Marshal(r)
	if err != nil {
		return nil, &reason.Error{Code: reason.InternalFault, Doing: "encode the record of instance " + r.Instance.UID, Cause: err}
	}
	return b, nil
}

// DecodeRecord reads the record of the instance with a UID. The errors are StateNewer, for one of a later version, and StateCorrupt.
func DecodeRecord(uid string, data []byte) (Record, error) {
	var r Record
	doing := "decode the record of instance " + uid
	err := error(nil)
	if len(data) > recordMax {
		err = fmt.Errorf("%d bytes, at most %d are possible", len(data), recordMax)
	} else if err = decoding.Unmarshal(data, &r); err == nil {
		if r.Schema > recordSchema {
			return Record{}, &reason.Error{Code: reason.StateNewer, Doing: doing, Hint: "bring tako-agent on this host up to date"}
		}
		err = r.valid(uid)
	}
	if err != nil {
		return Record{}, &reason.Error{Code: reason.StateCorrupt, Doing: doing, Cause: err}
	}
	return r, nil
}

// valid returns what no record is.
func (r *Record) valid(uid string) error {
	if len(r.Tasks) > tasksMax || len(r.Ports) > portsMax {
		return errors.New("more tasks or ports than there can be")
	}
	first := run.ID{Instance: uid, Task: "t", Attempt: 1}
	if r.Instance.UID != uid || first.Valid() != nil {
		return errors.New("it is about another instance")
	}
	for i := range r.Tasks {
		t := &r.Tasks[i]
		id := run.ID{Instance: uid, Task: t.Name, Attempt: 1}
		if id.Valid() != nil || min(t.Grace, t.Delay) < 0 || slices.ContainsFunc(r.Tasks[:i], func(o TaskRecord) bool { return o.Name == t.Name }) {
			return fmt.Errorf("task %d is none", i)
		}
		if _, err := t.state(); err != nil {
			return err
		}
	}
	if h := r.Held; h != nil && (h.Amounts.CPU < 0 || h.Amounts.Memory < 0 || h.Amounts.Disk < 0 || h.Amounts.Instances < 0) {
		return errors.New("it holds less than nothing")
	}
	return nil
}

func (t *TaskRecord) state() (life.State, error) {
	if len(t.State) == 0 {
		return life.State{}, nil
	}
	return life.Decode(t.State)
}

// request is what was asked of the ledger for it.
func (h *Holding) request() fit.Request {
	r := fit.Request{Amounts: h.Amounts, Ports: h.Ports}
	for kind, pieces := range h.Devices {
		r.Devices = append(r.Devices, fit.DeviceCount{Name: kind, Count: int64(len(pieces))})
	}
	slices.SortFunc(r.Devices, func(a, b fit.DeviceCount) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return r
}
