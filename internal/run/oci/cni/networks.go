package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"tako.dev/tako/internal/disk"
	"tako.dev/tako/internal/reason"
)

const (
	dirMode, fileMode = 0o700, 0o600
	// recordMax bounds a record: a list, and what plugins say of it.
	recordMax = listMax + saidMax + 64<<10
	// recordEnd and pinEnd end the names of an instance's record and of its namespace.
	recordEnd, pinEnd = ".json", ".net"
	// packageHint says how a host comes by plugins.
	packageHint = "install the package containernetworking-plugins"
)

// Options of Networks.
type Options struct {
	// Dir is where networks are kept: absolute, and of nobody else. It is made where it is missing.
	Dir string
	// Config is the directory of the host's lists. Default: /etc/cni/net.d.
	Config string
	// Plugins are the directories of plugins, in order. Default: /usr/lib/cni, which is Debian's, /opt/cni/bin and /usr/libexec/cni.
	Plugins []string
}

func (o Options) withDefaults() Options {
	if o.Config == "" {
		o.Config = "/etc/cni/net.d"
	}
	if len(o.Plugins) == 0 {
		o.Plugins = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}
	}
	return o
}

// Networks are those of the instances of a host. Its methods may be called from any goroutine.
type Networks struct {
	opts Options

	mu     sync.Mutex // guards what follows
	claims map[string]*claim
}

// claim is an instance that somebody does something about.
type claim struct {
	turn  chan struct{} // has room while nobody has it
	users int           // who has or waits for it
	held  int           // those that start something in the network
}

// record is what there is of a network, or was about to be.
type record struct {
	List    list            `json:"list"`
	Ports   []Port          `json:"ports,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"` // of the last plugin that is known to have made its part
	Made    bool            `json:"made,omitempty"`   // by all plugins
	Address netip.Addr      `json:"address"`
}

// New makes Networks; it makes no network.
func New(o Options) (*Networks, error) {
	o = o.withDefaults()
	if err := os.MkdirAll(o.Dir, dirMode); err != nil {
		return nil, disk.Fault("make", o.Dir, err)
	}
	return &Networks{opts: o, claims: map[string]*claim{}}, nil
}

func (n *Networks) file(instance string) string { return filepath.Join(n.opts.Dir, instance+recordEnd) }
func (n *Networks) pin(instance string) string  { return filepath.Join(n.opts.Dir, instance+pinEnd) }

// Lacks is, in words, why no instance can have a network of its own now, and what is to be done about it; empty: it can.
func (n *Networks) Lacks() string { return Lacks(n.opts) }

// Lacks is what Networks with these options say. They need no directory for that.
func Lacks(o Options) string {
	o = o.withDefaults()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil || have[0].Effective&(1<<unix.CAP_NET_ADMIN) == 0 || have[0].Effective&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return "the agent has not the capabilities CAP_NET_ADMIN and CAP_SYS_ADMIN"
	}
	l, file, err := o.list()
	if err != nil {
		return fmt.Sprintf("the network of %s cannot be used: %v", file, err)
	}
	for _, name := range l.programs() {
		if find(name, o.Plugins) == "" {
			return fmt.Sprintf("there is no CNI plugin %s in %s: %s", name, strings.Join(o.Plugins, ", "), packageHint)
		}
	}
	return ""
}

// list is the network of instances now, and the file that says so.
func (o Options) list() (*list, string, error) {
	l, file, err := declared(o.Config)
	if l != nil || err != nil {
		return l, file, err
	}
	bridge, others, err := prefixes()
	if err != nil {
		return nil, "this host", err
	}
	s := subnet(bridge, others)
	if !s.IsValid() {
		return nil, "this host", fmt.Errorf("all of %v overlap with its own networks: declare one in %s", subnets, o.Config)
	}
	l, err = builtIn(s, filepath.Join(o.Dir, "addresses"))
	return l, "this host", err
}

// Hold is the file of the namespace of an instance's network, which is made where it is not there. Nobody takes it away before done was called.
func (n *Networks) Hold(ctx context.Context, instance string, ports []Port) (path string, done func(), err error) {
	c, leave, err := n.enter(ctx, instance)
	if err != nil {
		return "", nil, err
	}
	defer leave()
	if err := n.provide(ctx, instance, ports); err != nil {
		return "", nil, err
	}
	n.hold(c, 1)
	return n.pin(instance), func() {
		n.hold(c, -1)
		n.leave(instance, c)
	}, nil
}

// Release takes the network of an instance away, unless it is held or used. What is not there is taken away already.
func (n *Networks) Release(ctx context.Context, instance string, used func() bool) error {
	if !n.there(instance) {
		return nil
	}
	c, leave, err := n.enter(ctx, instance)
	if err != nil {
		return err
	}
	defer leave()
	if n.hold(c, 0) > 0 || used() {
		return nil
	}
	r, there, err := n.read(instance)
	if err != nil || !there {
		return err
	}
	return n.takeAway(ctx, instance, r)
}

// there reports whether there is anything of the network of an instance.
func (n *Networks) there(instance string) bool {
	_, err := os.Lstat(n.file(instance))
	return err == nil
}

// All are the instances of which there is a network, or a part of one.
func (n *Networks) All() ([]string, error) {
	entries, err := os.ReadDir(n.opts.Dir)
	if err != nil {
		return nil, disk.Fault("list", n.opts.Dir, err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), recordEnd); ok && !strings.HasPrefix(name, ".") {
			names = append(names, name)
		}
	}
	return names, nil
}

// Address is where an instance is reached from its host. known: its network is made.
func (n *Networks) Address(instance string) (a netip.Addr, known bool) {
	r, there, err := n.read(instance)
	if err != nil || !there {
		return a, false
	}
	return r.Address, r.Made
}

// enter waits for the turn of an instance.
func (n *Networks) enter(ctx context.Context, instance string) (*claim, func(), error) {
	n.mu.Lock()
	c := n.claims[instance]
	if c == nil {
		c = &claim{turn: make(chan struct{}, 1)}
		n.claims[instance] = c
	}
	c.users++
	n.mu.Unlock()
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		n.leave(instance, c)
		return nil, nil, reason.Ended("wait for the network of "+instance, ctx.Err())
	}
	return c, func() {
		<-c.turn
		n.leave(instance, c)
	}, nil
}

// leave is the end of what enter and Hold begin.
func (n *Networks) leave(instance string, c *claim) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.users--; c.users == 0 {
		delete(n.claims, instance)
	}
}

// hold counts those that start something in a network, each of which has its claim.
func (n *Networks) hold(c *claim, by int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.held, c.users = c.held+by, c.users+max(by, 0)
	return c.held
}

// provide makes the network of an instance where it is not there as a whole.
func (n *Networks) provide(ctx context.Context, instance string, ports []Port) error {
	r, there, err := n.read(instance)
	if err != nil {
		return err
	}
	if there {
		if r.Made && pinned(n.pin(instance)) {
			return nil
		}
		if err := n.takeAway(ctx, instance, r); err != nil {
			return err
		}
	}
	l, file, err := n.opts.list()
	if err != nil {
		return fault("read the network of "+file, err)
	}
	if len(ports) > 0 && !l.leads() {
		return &reason.Error{Code: reason.RuntimeUnfit, Doing: "make the network of instance " + instance,
			Cause: fmt.Errorf("it has ports, and no plugin of network %s in %s has the capability %s, so nobody could reach them", l.Name, file, mappings),
			Hint:  "add the plugin portmap to the list, with this capability"}
	}
	r = &record{List: *l, Ports: ports}
	if err := n.write(instance, r); err != nil {
		return err
	}
	if err := n.make(ctx, instance, r); err != nil {
		// By another context: what was made in part is to go although nobody waits any more.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), pluginMax)
		defer cancel()
		return errors.Join(fault("make the network of instance "+instance, err), n.takeAway(limited, instance, r))
	}
	return n.write(instance, r)
}

// make makes what the record says.
func (n *Networks) make(ctx context.Context, instance string, r *record) error {
	path := n.pin(instance)
	if err := pin(path); err != nil {
		return err
	}
	c := call{command: add, instance: instance, path: path, dirs: n.opts.Plugins, ports: r.Ports}
	for _, text := range r.List.Plugins {
		result, err := c.run(ctx, &r.List, text)
		if err != nil {
			return err
		}
		if !json.Valid(result) {
			return errors.New("a plugin says what is no JSON")
		}
		if c.prior = result; bytes.Equal(result, r.Result) {
			continue // most hand on what the first has said
		}
		r.Result = result // before the next one makes something, which some take away only where they are told this
		if err := n.write(instance, r); err != nil {
			return err
		}
	}
	a, err := addressOf(r.Result)
	if err != nil {
		return fmt.Errorf("read what it has become: %w", err)
	}
	r.Made, r.Address = true, a
	return nil
}

// takeAway takes away what a record says, all of which may be gone.
func (n *Networks) takeAway(ctx context.Context, instance string, r *record) error {
	path := n.pin(instance)
	c := call{command: del, instance: instance, path: path, dirs: n.opts.Plugins, ports: r.Ports}
	if !pinned(path) {
		c.path = ""
	}
	if r.List.prior() {
		c.prior = r.Result
	}
	var errs []error
	for i := len(r.List.Plugins) - 1; i >= 0; i-- {
		if _, err := c.run(ctx, &r.List, r.List.Plugins[i]); err != nil {
			errs = append(errs, err)
		}
	}
	doing := "take away the network of instance " + instance
	if err := errors.Join(errs...); err != nil {
		return fault(doing, err)
	}
	if err := unpin(path); err != nil {
		return fault(doing, err)
	}
	if err := os.Remove(n.file(instance)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return disk.Fault("remove", n.file(instance), err)
	}
	return nil
}

func fault(doing string, err error) error {
	return &reason.Error{Code: reason.NetworkFailed, Doing: doing, Cause: err}
}

// read reads the record of an instance; false: there is none.
func (n *Networks) read(instance string) (*record, bool, error) {
	text, err := readSome(n.file(instance), recordMax+1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, disk.Fault("read", n.file(instance), err)
	}
	r, err := decodeRecord(text)
	if err != nil {
		return nil, false, &reason.Error{Code: reason.StateCorrupt, Doing: "read " + n.file(instance), Cause: err}
	}
	return r, true, nil
}

// decodeRecord reads a record.
func decodeRecord(text []byte) (*record, error) {
	if len(text) > recordMax {
		return nil, fmt.Errorf("it has more than %d bytes", recordMax)
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	if r.Made && (len(r.Result) == 0 || !r.Address.IsValid()) {
		return nil, errors.New("it is of a network that is made, and has no address")
	}
	return &r, r.List.valid()
}

// write puts a record in place as a whole, durably: after a power cut there may still be what plugins have kept on the disk.
func (n *Networks) write(instance string, r *record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return &reason.Error{Code: reason.InternalFault, Doing: "encode the network of instance " + instance, Cause: err}
	}
	temp := filepath.Join(n.opts.Dir, "."+instance+recordEnd)
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return disk.Fault("write", temp, err)
	}
	_, err = f.Write(text)
	if err == nil {
		err = disk.Fsync(int(f.Fd()))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temp, n.file(instance))
	}
	if err == nil {
		err = syncDir(n.opts.Dir)
	}
	if err != nil {
		return disk.Fault("write", n.file(instance), err)
	}
	return nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return disk.Fsync(int(f.Fd()))
}
