package instances

import (
	goruntime "runtime"

	"golang.org/x/sys/unix"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/scheduler/fit"
	"tako.dev/tako/internal/transfer/wire"
)

// What the host keeps for itself, of its memory: a tenth, but not less than a small system takes, and not more than a large one does.
const (
	memoryKeptMin = 256 << 20
	memoryKeptMax = 2 << 30
)

// Offers is what the host has for instances, by what it observes of itself. directories are those that instances may mount.
func (k *Keeper) Offers(lookup declare.Lookup, directories []string) wire.Offers {
	number := func(name string) int64 {
		value, known := lookup(name)
		if !known {
			return 0
		}
		return value.Number()
	}
	o := wire.Offers{CPU: 1000 * number("facts.cpu.count"), Memory: number("facts.memory.bytes"), Arch: goruntime.GOARCH, Directories: directories}
	if o.CPU == 0 {
		o.CPU = 1000 * int64(goruntime.NumCPU())
	}
	o.Memory = max(o.Memory-min(max(o.Memory/10, memoryKeptMin), memoryKeptMax), 0)
	if address, known := lookup("facts.network.primary.address"); known {
		o.Address = address.String()
	}
	for _, r := range k.opts.Runtimes {
		if r.Unfit == nil || r.Unfit() == "" {
			o.Runtimes = append(o.Runtimes, string(r.Name))
			if r.NoNetworks != nil && r.NoNetworks() == "" {
				o.Runtimes = append(o.Runtimes, string(fit.WithNetwork(r.Name)))
			}
		}
	}
	for kind, pieces := range k.devices() {
		if len(o.Devices) == wire.OffersMax {
			break
		}
		if o.Devices == nil {
			o.Devices = map[string][]string{}
		}
		for _, p := range pieces[:min(len(pieces), wire.OffersMax)] {
			o.Devices[kind] = append(o.Devices[kind], p.Name)
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(k.opts.StateDir, &st); err == nil {
		// What is kept for root is what a full disk leaves to the host itself; how much is free just now is nobody's to promise.
		o.Disk = int64(st.Blocks-(st.Bfree-st.Bavail)) * st.Bsize
	}
	return o
}
