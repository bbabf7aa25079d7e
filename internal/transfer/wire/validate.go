package wire

import (
	"errors"
	"fmt"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/catalog"
)

// Bounds of a report that are of nobody else's interest.
const (
	sessionMax    = 64 // bytes of Session.ID
	factsMax      = 256
	factsBytesMax = 64 << 10 // of all facts, disks and interfaces with their names: they are stored with the Node; a host has some hundred bytes
	nameMax       = 256      // bytes of the name of a fact, of a version, of an outcome, of a disk, of its model, of an address
	titleMax      = declare.ClaimBytesMax + nameMax
)

// Validate says what of a report is above its bounds. The host that sends it has cut it; one that has not wants to fill the server's
// memory. What is unknown in it, because the host is of a later version, is none of that.
func (r *Report) Validate() error {
	b := bounds{}
	b.text("session", r.Session.ID, sessionMax)
	b.text("verdict", r.Verdict.Message, MessageMax)
	b.text("server", r.Server, nameMax)
	b.text("peer", r.FromPeer, nameMax)
	b.count("configs", len(r.Configs), catalog.LayersMax+1)
	for i := range r.Configs {
		c := &r.Configs[i]
		b.text("id of a config", c.ID, declare.ClaimBytesMax)
		b.text("message of a config", c.Message, MessageMax)
	}
	b.count("problems", len(r.Problems), ProblemsMax)
	for i := range r.Problems {
		p := &r.Problems[i]
		b.text("title", p.Title, titleMax)
		b.text("claim", p.Claim, declare.ClaimBytesMax)
		b.text("config", p.Config, declare.ClaimBytesMax)
		b.text("outcome", p.Outcome, nameMax)
		b.text("message", p.Message, MessageMax)
	}
	b.count("statements", len(r.Statements), StatementsMax)
	for i := range r.Statements {
		s := &r.Statements[i]
		b.text("layer of a statement", s.Layer, declare.ClaimBytesMax)
		b.text("message of a statement", s.Message, MessageMax)
	}
	b.instances(r.Instances)
	if r.Offers != nil {
		b.offers(r.Offers)
	}
	if r.Host != nil {
		b.host(r.Host)
	}
	return b.err
}

func (b *bounds) instances(all []Instance) {
	b.count("instances", len(all), catalog.InstancesMax)
	bytes := 0
	for i := range all {
		in := &all[i]
		b.text("UID of an instance", in.UID, nameMax)
		b.text("message of an instance", in.Message, InstanceMessageMax)
		b.text("revision of an instance", in.Revision, RevisionHashMax)
		bytes += in.size()
		for _, p := range in.Ports {
			b.text("name of a port", p.Name, nameMax)
		}
		if b.err == nil && i > 0 && all[i-1].UID >= in.UID {
			b.err = fmt.Errorf("its instance %.64q is not in order, or there twice", in.UID)
		}
	}
	b.count("bytes of instances", bytes, InstancesBytesMax)
}

func (b *bounds) offers(o *Offers) {
	if b.err == nil && min(o.CPU, o.Memory, o.Disk) < 0 {
		b.err = errors.New("what it offers is less than nothing")
	}
	b.text("address of instances", o.Address, nameMax)
	b.text("architecture", o.Arch, nameMax)
	b.count("runtimes", len(o.Runtimes), OffersMax)
	for _, r := range o.Runtimes {
		b.text("name of a runtime", r, nameMax)
	}
	b.count("kinds of devices", len(o.Devices), OffersMax)
	for kind, pieces := range o.Devices {
		b.text("kind of a device", kind, nameMax)
		b.count("devices", len(pieces), OffersMax)
		for _, p := range pieces {
			b.text("name of a device", p, nameMax)
		}
	}
	b.count("directories", len(o.Directories), DirectoriesMax)
	for _, d := range o.Directories {
		b.text("directory", d, declare.ClaimBytesMax)
	}
}

func (b *bounds) host(h *Host) {
	b.text("version", h.Version, nameMax)
	b.text("peer address", h.Peer, nameMax)
	b.count("facts", len(h.Facts), factsMax)
	sum := 0
	for name, value := range h.Facts {
		b.text("name of a fact", name, nameMax)
		b.text("fact", value, FactMax)
		sum += len(name) + len(value)
	}
	b.count("disks", len(h.Disks), DisksMax)
	for i := range h.Disks {
		d := &h.Disks[i]
		b.text("name of a disk", d.Name, nameMax)
		b.text("model of a disk", d.Model, nameMax)
		sum += len(d.Name) + len(d.Model)
	}
	b.count("interfaces", len(h.Interfaces), InterfacesMax)
	addresses := 0
	for i := range h.Interfaces {
		n := &h.Interfaces[i]
		b.text("name of an interface", n.Name, nameMax)
		b.text("hardware address", n.MAC, nameMax)
		addresses += len(n.Addresses)
		for _, a := range n.Addresses {
			b.text("address", a, nameMax)
			sum += len(a)
		}
		sum += len(n.Name) + len(n.MAC)
	}
	b.count("addresses", addresses, AddressesMax)
	b.count("images", len(h.Images), ImagesMax)
	for _, m := range h.Images {
		b.text("image", m, ImageNameMax)
	}
	b.count("bytes of facts", sum, factsBytesMax)
}

// bounds keeps the first thing that is out of them.
type bounds struct{ err error }

func (b *bounds) text(what, s string, most int) {
	if b.err == nil && len(s) > most {
		b.err = fmt.Errorf("its %s has %d bytes, at most %d are allowed", what, len(s), most)
	}
}

func (b *bounds) count(what string, n, most int) {
	if b.err == nil && n > most {
		b.err = fmt.Errorf("it has %d %s, at most %d are allowed", n, what, most)
	}
}
