package workload

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

func (v *validator) template() {
	t := &v.spec.Template
	const path = "spec.template"
	if n := encodedBytes(t); n > declare.BodyBytesMax {
		v.fault(path, reason.BodyTooLarge, fmt.Sprintf("the template has %d bytes, at most %d are stored", n, declare.BodyBytesMax), "put large texts into ConfigMaps, or into the image")
	}
	if v.atMost(path+".labels", len(t.Labels), labelsMax, "labels") {
		v.add(declare.CheckLabels(path+".labels", t.Labels))
	}
	v.runtime()
	v.duration(path+".shutdownDelay", t.ShutdownDelay, 0, time.Hour)
	v.duration(path+".terminationGrace", t.TerminationGrace, 0, day)
	v.restart()
	volumes := v.volumes()
	if len(t.Tasks) == 0 {
		v.missing(path, "tasks", `write for example tasks: [{name: web, command: [/usr/bin/web]}]`)
	}
	if !v.atMost(path+".tasks", len(t.Tasks), tasksMax, "tasks") {
		return
	}
	names, ports := map[string]string{}, portSet{names: map[string]string{}, numbers: map[string]string{}}
	for i := range t.Tasks {
		at := declare.IndexPath(path+".tasks", i)
		v.listName(names, at, t.Tasks[i].Name, "the name")
		v.ports(at, t.Tasks[i].Ports, &ports)
		v.task(at, &t.Tasks[i], volumes)
	}
}

// runtime checks that all tasks can be run by one runtime.
func (v *validator) runtime() {
	t := &v.spec.Template
	const path = "spec.template"
	v.add(declare.CheckWord(path+".runtime", "runtime", t.Runtime, Systemd, Process, OCI))
	v.add(declare.CheckWord(path+".network", "network", t.Network, HostNetwork, OwnNetwork))
	runtime := t.RuntimeOrDefault()
	if t.Network == OwnNetwork && runtime != OCI {
		v.notAllowed(path+".network", fmt.Sprintf("a network of its own needs runtime OCI, and the runtime is %s", runtime), "remove it, or give the tasks an image")
	}
	for i := range t.Tasks {
		at := declare.IndexPath(path+".tasks", i)
		switch image := t.Tasks[i].Image; {
		case image == nil && runtime == OCI:
			v.missing(at, "image", "all tasks of a template have one runtime, and OCI runs images: give the task one, or make a workload of its own of it")
		case image != nil && runtime != OCI:
			v.notAllowed(at+".image", fmt.Sprintf("an image needs runtime OCI, and the runtime is %s", runtime), "remove the runtime, or the image")
		}
	}
}

func (v *validator) restart() {
	r := &v.spec.Template.Restart
	const path = "spec.template.restart"
	v.add(declare.CheckWord(path+".policy", "restart policy", r.Policy, RestartAlways, RestartOnFailure, RestartNever))
	switch mode := v.spec.ModeOrDefault(); {
	case mode == RunToCompletion && r.Policy == RestartAlways:
		v.notAllowed(path+".policy", "a job whose tasks are always started again is never over", "write OnFailure or Never")
	case mode != RunToCompletion && (r.Policy == RestartOnFailure || r.Policy == RestartNever):
		v.notAllowed(path+".policy", fmt.Sprintf("with mode %s a task that has ended is always started again", mode), "remove it, or write mode: Job")
	}
	v.duration(path+".backoff", r.Backoff, 100*time.Millisecond, time.Hour)
	v.duration(path+".backoffMax", r.BackoffMax, 100*time.Millisecond, day)
	if most := durationOr(r.BackoffMax, backoffMaxDefault); r.BackoffMax != "" && most < r.BackoffOrDefault() {
		v.invalid(path+".backoffMax", fmt.Sprintf("the longest pause is %s, and the first is %s", words(most), words(r.BackoffOrDefault())), "backoff is at most backoffMax")
	}
	v.duration(path+".resetAfter", r.ResetAfter, shortest, day)
}

// volumes checks them, and returns their names.
func (v *validator) volumes() []string {
	const path = "spec.template.volumes"
	list := v.spec.Template.Volumes
	if !v.atMost(path, len(list), volumesMax, "volumes") {
		return nil
	}
	seen := map[string]string{}
	var names []string
	for i := range list {
		volume, at := &list[i], declare.IndexPath(path, i)
		v.listName(seen, at, volume.Name, "the name")
		names = append(names, volume.Name)
		v.oneOf(at, "what the volume is", []string{"temporary", "host", "data"}, volume.Temporary != nil, volume.Host != nil, volume.Data != nil)
		if t := volume.Temporary; t != nil {
			v.bytes(at+".temporary.size", t.Size, 1)
			if t.InMemory && t.Size == "" {
				v.missing(at+".temporary", "size", "what is in memory needs a bound")
			}
		}
		if h := volume.Host; h != nil {
			v.path(at+".host", "path", h.Path)
		}
		if d := volume.Data; d != nil {
			v.bytes(at+".data.size", d.Size, 0)
			v.add(declare.CheckWord(at+".data.stick", "bond to the node", d.Stick, MustStick, PreferStick))
		}
	}
	return names
}

// path checks an absolute path that must be there.
func (v *validator) path(parent, field, file string) {
	if file == "" {
		v.missing(parent, field, "")
		return
	}
	v.add(declare.CheckPath(parent+"."+field, file))
}

// The most that one amount may say. So sums over a template, and over all instances of a node, fit an int64.
const (
	milliMax = 1_000_000 * 1000 // of processors
	bytesMax = 1 << 56
)

// amount checks a quantity that may be left out, and returns it. What is nothing where something must be, is refused as what is negative.
func (v *validator) amount(path string, q declare.Quantity, least, most int64, in func(declare.Quantity) (int64, error), example string) int64 {
	if q == "" {
		return 0
	}
	n, err := in(q)
	switch {
	case err != nil:
		v.invalid(path, err.Error(), example)
		return 0
	case n < 0 || strings.HasPrefix(string(q), "-"):
		v.invalid(path, fmt.Sprintf("%q is negative", declare.ClipText(string(q))), example)
	case n < least:
		v.invalid(path, fmt.Sprintf("%q is nothing", declare.ClipText(string(q))), "leave it out, or "+example)
	case n > most:
		v.invalid(path, fmt.Sprintf("%q is more than any node has", declare.ClipText(string(q))), example)
	}
	return n
}

func (v *validator) cpu(path string, q declare.Quantity, least int64) int64 {
	return v.amount(path, q, least, milliMax, declare.Quantity.Milli, `write for example "2", or "500m" for half a processor`)
}

func (v *validator) bytes(path string, q declare.Quantity, least int64) int64 {
	return v.amount(path, q, least, bytesMax, declare.Quantity.Value, `write for example "512Mi" or "10Gi"`)
}

func (v *validator) resources(at string, r *Resources) {
	requests, limits := at+".requests", at+".limits"
	for _, a := range []struct {
		field            string
		requested, limit int64
		limited          bool
	}{
		{"cpu", v.cpu(requests+".cpu", r.Requests.CPU, 0), v.cpu(limits+".cpu", r.Limits.CPU, 1), r.Limits.CPU != ""},
		{"memory", v.bytes(requests+".memory", r.Requests.Memory, 0), v.bytes(limits+".memory", r.Limits.Memory, 1), r.Limits.Memory != ""},
		{"disk", v.bytes(requests+".disk", r.Requests.Disk, 0), v.bytes(limits+".disk", r.Limits.Disk, 1), r.Limits.Disk != ""},
	} {
		if a.limited && a.limit > 0 && a.limit < a.requested {
			v.invalid(limits+"."+a.field, "the limit is below the request", "a limit is at least what is requested")
		}
	}
	if r.Requests.Processes != nil {
		v.notAllowed(requests+".processes", "the number of processes is a limit", "write it below limits")
	}
	const processesMax = 1 << 22 // PID_MAX_LIMIT of Linux
	v.count(limits+".processes", r.Limits.Processes, 1, processesMax)
	if !v.atMost(at+".devices", len(r.Devices), devicesMax, "devices") {
		return
	}
	seen := map[string]string{}
	for i := range r.Devices {
		d, at := &r.Devices[i], declare.IndexPath(at+".devices", i)
		if d.Name == "" {
			v.missing(at, "name", `such as "nvidia.com/gpu"`)
		} else {
			v.add(declare.CheckLabelKey(at+".name", d.Name))
			v.unique(seen, at+".name", d.Name, "the device")
		}
		v.count(at+".count", d.Count, 1, deviceCountMax)
	}
}

func (v *validator) task(at string, t *Task, volumes []string) {
	v.image(at, t)
	v.command(at, t)
	if t.WorkingDirectory != "" && t.WorkingDirectory != "/" {
		v.add(declare.CheckPath(at+".workingDirectory", t.WorkingDirectory))
	}
	if t.User != "" && !declare.IsOwner(t.User) {
		v.invalid(at+".user", fmt.Sprintf("%q is neither a name nor a number of a user", declare.ClipText(t.User)), "")
	}
	v.environment(at, t)
	v.resources(at+".resources", &t.Resources)
	v.filesAndMounts(at, t, volumes)
	v.probe(at+".startup", t.Startup, t.Ports)
	v.probe(at+".readiness", t.Readiness, t.Ports)
	v.probe(at+".liveness", t.Liveness, t.Ports)
	v.add(declare.CheckWord(at+".stopSignal", "signal", t.StopSignal, "SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH"))
	if t.Writable && t.Image == nil {
		v.notAllowed(at+".writable", "it is about the root of an image, and there is none", "remove it")
	}
}

func (v *validator) image(at string, t *Task) {
	if t.Image == nil {
		return
	}
	at += ".image"
	v.oneOf(at, "where the image is", []string{"object", "path"}, t.Image.Object != nil, t.Image.Path != "")
	if t.Image.Object != nil {
		v.add(declare.CheckObject(at+".object", t.Image.Object))
	}
	if t.Image.Path != "" {
		v.add(declare.CheckPath(at+".path", t.Image.Path))
	}
}

func (v *validator) command(at string, t *Task) {
	switch {
	case len(t.Command) > 0 && t.Command[0] == "":
		v.invalid(at+".command[0]", "the program has no name", "")
	case len(t.Command) == 0 && t.Image == nil:
		v.missing(at, "command", "write for example command: [/usr/bin/web, --port, \"8080\"]")
	case t.Image == nil && !strings.HasPrefix(t.Command[0], "/"):
		v.invalid(at+".command[0]", fmt.Sprintf("program %q is not absolute", declare.ClipText(t.Command[0])), "begin it with /: which one a plain name means depends on the node")
	}
	v.arguments(at+".command", t.Command)
	v.arguments(at+".args", t.Args)
}

func (v *validator) arguments(at string, list []string) {
	if !v.atMost(at, len(list), declare.ArgumentsMax, "arguments") {
		return
	}
	for i, a := range list {
		if strings.Contains(a, "\x00") {
			v.invalid(declare.IndexPath(at, i), "the argument holds a NUL byte, which no program can be given", "")
		}
	}
}

// filesAndMounts checks what a task sees: each path is one thing.
func (v *validator) filesAndMounts(at string, t *Task, volumes []string) {
	paths := map[string]string{}
	if v.atMost(at+".mounts", len(t.Mounts), mountsMax, "mounts") {
		for i := range t.Mounts {
			m, at := &t.Mounts[i], declare.IndexPath(at+".mounts", i)
			v.path(at, "path", m.Path)
			v.unique(paths, at+".path", m.Path, "something with the path")
			if m.Volume == "" {
				v.missing(at, "volume", "")
			} else if !contains(volumes, m.Volume) {
				v.fault(at+".volume", reason.DanglingReference, fmt.Sprintf("it names %q, which is no volume of the template", declare.ClipText(m.Volume)), declare.DidYouMean(m.Volume, volumes))
			}
		}
	}
	if !v.atMost(at+".files", len(t.Files), filesMax, "files") {
		return
	}
	for i := range t.Files {
		f, at := &t.Files[i], declare.IndexPath(at+".files", i)
		v.path(at, "path", f.Path)
		v.unique(paths, at+".path", f.Path, "something with the path")
		v.oneOf(at, "what is in the file", []string{"content", "secret", "configMap"}, f.Content != "", f.Secret != nil, f.ConfigMap != nil)
		v.key(at+".secret", f.Secret)
		v.key(at+".configMap", f.ConfigMap)
		if bits, ok := f.Mode.Bits(); f.Mode != "" && (!ok || bits > 0o777) {
			v.invalid(at+".mode", fmt.Sprintf("%q is not an octal mode up to 0777", declare.ClipText(string(f.Mode))), `write octal digits, for example "0440"`)
		}
	}
}

func contains(words []string, word string) bool {
	for _, w := range words {
		if w == word {
			return true
		}
	}
	return false
}

// key checks which value of a Secret or ConfigMap is meant.
func (v *validator) key(at string, k *declare.KeySelector) {
	if k == nil {
		return
	}
	if k.Namespace != "" {
		v.notAllowed(at+".namespace", "a workload takes from its own namespace only", "leave it out")
	}
	if k.Name == "" {
		v.missing(at, "name", "")
	} else if !declare.IsSubdomain(k.Name) {
		v.invalid(at+".name", fmt.Sprintf("%q is not a name", declare.ClipText(k.Name)), "up to 253 of a-z, 0-9, - and ., with a letter or digit first and last")
	}
	if k.Key == "" {
		v.missing(at, "key", "")
	} else if !declare.IsDataKey(k.Key) {
		v.invalid(at+".key", fmt.Sprintf("%q is not a key", declare.ClipText(k.Key)), "up to 253 letters, digits and any of - _ .")
	}
}

// ownKey is a declare.CheckKey for what a workload names.
func ownKey(at string, k *declare.KeySelector) []declare.Fault {
	var v validator
	v.key(at, k)
	return v.faults
}

// portSet is what the tasks of an instance have taken: they share one network, whichever that is.
//
// +k8s:deepcopy-gen=false
// +k8s:openapi-gen=false
type portSet struct{ names, numbers map[string]string }

func (v *validator) ports(at string, list []Port, taken *portSet) {
	if !v.atMost(at+".ports", len(list), portsMax, "ports") {
		return
	}
	for i := range list {
		p, at := &list[i], declare.IndexPath(at+".ports", i)
		if p.Name == "" {
			v.missing(at, "name", "")
		} else if !isServiceName(p.Name) {
			v.invalid(at+".name", fmt.Sprintf("%q is not the name of a port", declare.ClipText(p.Name)),
				"up to 15 of a-z, 0-9 and -, with a letter in it, a letter or digit first and last, and no two - in a row")
		} else {
			v.unique(taken.names, at+".name", p.Name, "the port")
		}
		v.add(declare.CheckWord(at+".protocol", "protocol", p.Protocol, TCP, UDP))
		if p.Port != 0 {
			v.number(at+".port", int64(p.Port), 1, 65535)
			v.unique(taken.numbers, at+".port", fmt.Sprintf("%s %d", p.ProtocolOrDefault(), p.Port), "the port")
		}
		v.text(at+".text", p.Text)
	}
}

// isServiceName is RFC 6335, 5.1.
func isServiceName(s string) bool {
	const most = 15
	return len(s) <= most && declare.IsDomainLabel(s) && strings.Trim(s, "0123456789-") != "" && !strings.Contains(s, "--")
}

// text checks keys and values of a TXT record, RFC 6763, 6.
func (v *validator) text(at string, text map[string]string) {
	const membersMax, memberBytesMax, textBytesMax = 16, 255, 400
	if !v.atMost(at, len(text), membersMax, "keys") {
		return
	}
	size := 0
	seen := map[string]string{}
	for _, key := range sortedKeys(text) {
		path := declare.KeyPath(at, key)
		size += 1 + len(key) + 1 + len(text[key])
		switch {
		case key == "" || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' || r == '=' }):
			v.invalid(path, fmt.Sprintf("%q is not a key", declare.ClipText(key)), "printable signs of ASCII without =")
		case strings.EqualFold(key, "txtvers"):
			v.notAllowed(path, "txtvers says the form of the record, and is written by tako", "remove it")
		case 1+len(key)+len(text[key]) > memberBytesMax:
			v.invalid(path, fmt.Sprintf("key and value have more than %d bytes", memberBytesMax-1), "")
		default:
			v.unique(seen, path, strings.ToLower(key), "the key")
		}
	}
	if size > textBytesMax {
		v.invalid(at, fmt.Sprintf("the keys and values have %d bytes in the record, at most %d are allowed", size, textBytesMax), "")
	}
}

func (v *validator) probe(at string, p *Probe, ports []Port) {
	if p == nil {
		return
	}
	v.oneOf(at, "what is asked", []string{"http", "tcp", "exec", "grpc"}, p.HTTP != nil, p.TCP != nil, p.Exec != nil, p.GRPC != nil)
	if h := p.HTTP; h != nil {
		v.probePort(at+".http", h.Port, ports)
		v.http(at+".http", h)
	}
	if p.TCP != nil {
		v.probePort(at+".tcp", p.TCP.Port, ports)
	}
	if e := p.Exec; e != nil {
		if len(e.Command) == 0 {
			v.missing(at+".exec", "command", "")
		} else if !strings.HasPrefix(e.Command[0], "/") {
			v.invalid(at+".exec.command[0]", fmt.Sprintf("program %q is not absolute", declare.ClipText(e.Command[0])), "begin it with /")
		}
		v.arguments(at+".exec.command", e.Command)
	}
	if g := p.GRPC; g != nil {
		v.probePort(at+".grpc", g.Port, ports)
		if len(g.Service) > declare.NameBytesMax || strings.ContainsFunc(g.Service, isControl) || !utf8.ValidString(g.Service) {
			v.invalid(at+".grpc.service", fmt.Sprintf("%q is not the name of a service", declare.ClipText(g.Service)), "")
		}
	}
	v.duration(at+".delay", p.Delay, 0, time.Hour)
	v.duration(at+".period", p.Period, 100*time.Millisecond, time.Hour)
	v.duration(at+".timeout", p.Timeout, time.Millisecond, 5*time.Minute)
	v.count(at+".successThreshold", p.SuccessThreshold, 1, 100)
	v.count(at+".failureThreshold", p.FailureThreshold, 1, 10_000)
}

func isControl(r rune) bool { return r <= ' ' || r == 0x7f }

func (v *validator) probePort(at, name string, ports []Port) {
	if name == "" {
		v.missing(at, "port", "the name of a port of the task")
		return
	}
	var names []string
	for i := range ports {
		if ports[i].Name == name {
			if ports[i].Protocol == UDP {
				v.invalid(at+".port", fmt.Sprintf("port %q is of UDP, and the probe speaks TCP", name), "")
			}
			return
		}
		names = append(names, ports[i].Name)
	}
	v.fault(at+".port", reason.DanglingReference, fmt.Sprintf("it names %q, which is no port of the task", declare.ClipText(name)), declare.DidYouMean(name, names))
}

func (v *validator) http(at string, h *HTTPProbe) {
	const bytesMax = 2048
	if u, err := url.ParseRequestURI(h.PathOrDefault()); err != nil || !strings.HasPrefix(h.PathOrDefault(), "/") || u.Host != "" || len(h.Path) > bytesMax || strings.ContainsFunc(h.Path, isControl) {
		v.invalid(at+".path", fmt.Sprintf("%q is not a path that can be asked for", declare.ClipText(h.Path)), `write for example "/healthz"`)
	}
	if _, err := netip.ParseAddr(h.Host); h.Host != "" && err != nil && !declare.IsSubdomain(strings.ToLower(h.Host)) {
		v.invalid(at+".host", fmt.Sprintf("%q is neither a name nor an address", declare.ClipText(h.Host)), "")
	}
	v.add(declare.CheckWord(at+".scheme", "scheme", h.Scheme, "http", "https"))
}
