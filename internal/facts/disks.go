package facts

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// listMax bounds the disks, the interfaces and the addresses that are told: they go to the servers with the Node.
const listMax = 64

// Disk is a disk of this machine, real or of the virtual machine's maker: not what is made of others (LVM, RAID, loop).
type Disk struct {
	Name       string // as below /dev, with ! where that has /
	Bytes      int64
	Model      string
	Rotational bool
}

// disks lists the disks by name. What goes away while it is looked at is left out.
func (at places) disks() []Disk {
	block := filepath.Join(at.sys, "block")
	entries, _ := os.ReadDir(block) // sorted; a container may have none
	var disks []Disk
	for _, e := range entries {
		name := e.Name()
		if !isDisk(name) || !exists(block, name+"/device") {
			continue
		}
		read := func(file string) string {
			b, _ := readFile(filepath.Join(block, name, file))
			return firstLine(b)
		}
		bytes := parseSectors(read("size"))
		if bytes == 0 { // a drive without a medium
			continue
		}
		if len(disks) == listMax {
			break
		}
		disks = append(disks, Disk{Name: name, Bytes: bytes, Model: printable(read("device/model")), Rotational: read("queue/rotational") == "1"})
	}
	return disks
}

// isDisk leaves out drives for media, and the small parts of an eMMC that are no place for files.
func isDisk(name string) bool {
	for _, prefix := range []string{"sr", "fd", "loop", "ram", "zram"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok && strings.Trim(rest, "0123456789") == "" {
			return false
		}
	}
	return !strings.Contains(name, "boot") && !strings.HasSuffix(name, "rpmb")
}

// parseSectors turns the size of a block device, always in units of 512 bytes, into bytes; 0 if it is malformed.
func parseSectors(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/512 {
		return 0
	}
	return n * 512
}

// printable is a text that hardware gave us, or "" where it is none.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return s
}

func (f Facts) disk(name string) (Disk, bool) {
	i, ok := slices.BinarySearchFunc(f.Disks, name, func(d Disk, name string) int { return strings.Compare(d.Name, name) })
	if !ok {
		return Disk{}, false
	}
	return f.Disks[i], true
}

func (d Disk) get(field string) (any, bool) {
	switch field {
	case "bytes":
		return d.Bytes, true
	case "model":
		return text(d.Model)
	case "rotational":
		return d.Rotational, true
	}
	return nil, false
}

func (i Interface) get(field string) (any, bool) {
	switch field {
	case "address":
		if len(i.Addresses) == 0 {
			return nil, false
		}
		return i.Addresses[0].Addr().String(), true
	case "addresses":
		return addressTexts(i.Addresses), true
	case "mac":
		return text(i.MAC)
	}
	return nil, false
}
