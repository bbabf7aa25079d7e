package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// pluginMax is how long one plugin may take: they take a tenth of a second, and wait for the lock of iptables, which another program may hold.
	pluginMax = 20 * time.Second
	// reapMax is how long is waited for the output of what a plugin has left.
	reapMax = time.Second
	// saidMax and wordsMax bound what is read of a plugin, and told of it.
	saidMax, wordsMax = 256 << 10, 1 << 10
	// interfaceName is what the interface of an instance is called in its namespace.
	interfaceName = "eth0"
)

// The commands of the specification that are used.
const (
	add = "ADD"
	del = "DEL"
)

// Port is one of an instance that others reach at its host.
type Port struct {
	Host  int32  `json:"hostPort"`
	Own   int32  `json:"containerPort"`
	Proto string `json:"protocol"` // tcp or udp
}

// call is one execution of a plugin.
type call struct {
	command  string
	instance string
	path     string // of the namespace; empty: it is gone
	dirs     []string
	ports    []Port
	prior    json.RawMessage // the result of the plugin before, or of all
}

// document is what a plugin reads: its configuration, and what it is to know of this one network.
func (c *call) document(l *list, text json.RawMessage) (*plugin, []byte, error) {
	p, err := parsePlugin(text)
	if err != nil {
		return nil, nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, nil, err
	}
	fields = maps.Clone(fields)
	set := func(name string, value any) {
		encoded, failed := json.Marshal(value)
		fields[name], err = encoded, errors.Join(err, failed)
	}
	set("name", l.Name)
	set("cniVersion", l.Version)
	if p.Capabilities[mappings] && len(c.ports) > 0 {
		set("runtimeConfig", map[string][]Port{mappings: c.ports})
	}
	if len(c.prior) > 0 {
		set("prevResult", c.prior)
	}
	if err != nil {
		return nil, nil, err
	}
	document, err := json.Marshal(fields)
	return &p, document, err
}

// run executes a plugin, and returns what it says.
func (c *call) run(ctx context.Context, l *list, text json.RawMessage) ([]byte, error) {
	p, document, err := c.document(l, text)
	if err != nil {
		return nil, err
	}
	program := find(p.Type, c.dirs)
	if program == "" {
		return nil, fmt.Errorf("plugin %s: it is not in %s", p.Type, strings.Join(c.dirs, " or "))
	}
	ctx, cancel := context.WithTimeout(ctx, pluginMax)
	defer cancel()
	var out, errs bounded
	cmd := exec.CommandContext(ctx, program)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = "/", bytes.NewReader(document), &out, &errs, reapMax
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "CNI_COMMAND=" + c.command, "CNI_CONTAINERID=" + c.instance, "CNI_NETNS=" + c.path,
		"CNI_IFNAME=" + interfaceName, "CNI_PATH=" + strings.Join(c.dirs, ":"),
	}
	// What goes on after its agent would make what the next agent takes away. The kernel minds the thread that has started it, so that has to stay.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	runtime.LockOSThread()
	err = cmd.Run()
	runtime.UnlockOSThread()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("plugin %s: %s: %w", p.Type, c.command, context.Cause(ctx))
	case out.over:
		return nil, fmt.Errorf("plugin %s: it says more than %d bytes", p.Type, saidMax)
	case err != nil:
		return nil, fmt.Errorf("plugin %s: %s: %s", p.Type, c.command, words(out.Bytes(), errs.Bytes(), err))
	}
	return out.Bytes(), nil
}

// bounded keeps the first of what is written.
type bounded struct {
	bytes.Buffer
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), saidMax-b.Len())
	b.over = b.over || n < len(p)
	_, err := b.Buffer.Write(p[:n])
	return len(p), err
}

// words are a plugin's own about what has failed: those of its document, otherwise what it has printed, otherwise how it has ended.
func words(out, errs []byte, ended error) string {
	var said struct {
		Msg     string `json:"msg"`
		Details string `json:"details"`
	}
	text := ended.Error()
	if err := json.Unmarshal(out, &said); err == nil && said.Msg != "" {
		if text = said.Msg; said.Details != "" {
			text += ": " + said.Details
		}
	} else if printed := strings.TrimSpace(string(errs)); printed != "" {
		text = printed
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }), " ")
	return strings.ToValidUTF8(text[:min(len(text), wordsMax)], "")
}

// addressOf finds the first address of a result.
func addressOf(result []byte) (netip.Addr, error) {
	var said struct {
		IPs []struct {
			Address string `json:"address"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(result, &said); err != nil {
		return netip.Addr{}, err
	}
	if len(said.IPs) == 0 {
		return netip.Addr{}, errors.New("it has given no address")
	}
	p, err := netip.ParsePrefix(said.IPs[0].Address)
	if err != nil {
		return netip.Addr{}, err
	}
	return p.Addr().Unmap().WithZone(""), nil
}

// find is where a plugin is; empty: nowhere.
func find(name string, dirs []string) string {
	for _, dir := range dirs {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p
		}
	}
	return ""
}
