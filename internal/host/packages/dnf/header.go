package dnf

import (
	"bytes"
	"encoding/binary"
	"strconv"
)

// The tags and types of a package's header that matter, rpmtag.h.
const (
	tagName    = 1000
	tagVersion = 1001
	tagRelease = 1002
	tagEpoch   = 1003
	tagArch    = 1022
	typeInt32  = 4
	typeString = 6

	headerHead    = 8  // number of entries, size of the values
	headerEntry   = 16 // tag, type, offset, count
	headerTagsMax = 1 << 16
	headerSizeMax = 256 << 20 // of rpm
	headerTextMax = 1 << 10   // ours, far above any real name or version
)

// installed is one package of the database.
type installed struct {
	name, arch string
	version    string // [EPOCH:]VERSION-RELEASE
}

// parseHeader reads a package's header, as rpm stores it: entries, and behind them their values. upTo returns the beginning of it, as far as
// it is needed: headers have lists of files that nobody asks for.
func parseHeader(size int64, upTo func(n int64) ([]byte, error)) (installed, error) {
	b, err := upTo(headerHead)
	if err != nil {
		return installed{}, err
	}
	if len(b) < headerHead {
		return installed{}, errDamaged
	}
	entries, values := int64(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint32(b[4:]))
	start := headerHead + headerEntry*entries
	if entries > headerTagsMax || values > headerSizeMax || start+values > size {
		return installed{}, errDamaged
	}
	index, err := upTo(start)
	if err != nil || int64(len(index)) < start {
		return installed{}, orDamaged(err)
	}
	text := func(offset int64) (string, error) {
		b, err := upTo(start + min(offset+headerTextMax, values))
		if err != nil || start+offset >= int64(len(b)) {
			return "", orDamaged(err)
		}
		s, _, whole := bytes.Cut(b[start+offset:], []byte{0})
		if !whole {
			return "", errDamaged
		}
		return string(s), nil
	}
	texts := map[uint32]string{}
	epoch := uint32(0)
	for e := index[headerHead:]; len(e) >= headerEntry; e = e[headerEntry:] {
		tag, kind, offset := binary.BigEndian.Uint32(e), binary.BigEndian.Uint32(e[4:]), int64(int32(binary.BigEndian.Uint32(e[8:])))
		switch {
		case offset < 0 || offset > values:
		case kind == typeString && (tag == tagName || tag == tagVersion || tag == tagRelease || tag == tagArch):
			if texts[tag], err = text(offset); err != nil {
				return installed{}, err
			}
		case kind == typeInt32 && tag == tagEpoch:
			b, err := upTo(start + offset + 4)
			if err != nil || int64(len(b)) < start+offset+4 {
				return installed{}, orDamaged(err)
			}
			epoch = binary.BigEndian.Uint32(b[start+offset:])
		}
	}
	if texts[tagName] == "" || texts[tagVersion] == "" || texts[tagRelease] == "" {
		return installed{}, errDamaged
	}
	return installed{name: texts[tagName], arch: texts[tagArch], version: fullVersion(epoch, texts[tagVersion], texts[tagRelease])}, nil
}

// fullVersion is how dnf writes a version: without an epoch of 0.
func fullVersion(epoch uint32, version, release string) string {
	v := version + "-" + release
	if epoch > 0 {
		v = strconv.FormatUint(uint64(epoch), 10) + ":" + v
	}
	return v
}

func orDamaged(err error) error {
	if err == nil {
		return errDamaged
	}
	return err
}
