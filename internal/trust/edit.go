package trust

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"tako.dev/tako/internal/reason"
)

// Edit is one change of a document on the way to the next number.
type Edit func(d *Document, at time.Time) error

// Next proposes the document after the highest one: the same with edits. It is not in force before enough root keys have signed it
// (Signed.Sign, Signed.Merge) and Extend has taken it. Errors: TrustRefused when there is no edit, or what comes out is not valid.
//
// It is issued at Time(now): where the clock was set back, or was ahead when the last number was made, the new number takes the
// time of the last one.
func (c *Chain) Next(now time.Time, edits ...Edit) (Signed, error) {
	d := c.Current()
	d.Number, d.Previous, d.Issued = d.Number+1, c.last, c.Time(now)
	doing := fmt.Sprintf("make trust document %d", d.Number)
	if len(edits) == 0 {
		return Signed{}, &reason.Error{Code: reason.TrustRefused, Doing: doing, Cause: errors.New("nothing is to be changed")}
	}
	if d.Number > documentsMax {
		return Signed{}, &reason.Error{Code: reason.TrustRefused, Doing: doing, Cause: fmt.Errorf("a chain has at most %d documents", documentsMax)}
	}
	for _, edit := range edits {
		if err := edit(&d, d.Issued); err != nil {
			return Signed{}, &reason.Error{Code: reason.TrustRefused, Doing: doing, Cause: err}
		}
	}
	d.sort()
	if err := d.validate(); err != nil {
		return Signed{}, &reason.Error{Code: reason.TrustRefused, Doing: doing, Cause: err}
	}
	return Signed{Document: d}.with(), nil
}

// AddRoot adds a root key and sets the threshold; a threshold of 0 stays as it is.
func AddRoot(key PublicKey, threshold int) Edit {
	return func(d *Document, _ time.Time) error {
		if slices.Contains(d.Root.Keys, key) {
			return fmt.Errorf("key %s is a root key already", key.ID())
		}
		d.Root.Keys = append(d.Root.Keys, key)
		if threshold != 0 {
			d.Root.Threshold = threshold
		}
		return nil
	}
}

// RotateRoot puts a new root key in the place of one, which is revoked. The old key signs this number for the last time.
func RotateRoot(old KeyID, key PublicKey) Edit {
	return func(d *Document, at time.Time) error {
		if err := RemoveRoot(old)(d, at); err != nil {
			return err
		}
		return AddRoot(key, 0)(d, at)
	}
}

// RemoveRoot takes a root key out and revokes it. The threshold stays: SetThreshold may have to lower it in the same number.
func RemoveRoot(id KeyID) Edit {
	return func(d *Document, at time.Time) error {
		i := slices.IndexFunc(d.Root.Keys, func(k PublicKey) bool { return k.ID() == id })
		if i < 0 {
			return fmt.Errorf("there is no root key %s", clipped(string(id)))
		}
		d.Revoked = append(d.Revoked, Revocation{d.Root.Keys[i], at})
		d.Root.Keys = slices.Delete(d.Root.Keys, i, i+1)
		return nil
	}
}

// SetThreshold sets how many root keys must sign.
func SetThreshold(n int) Edit {
	return func(d *Document, _ time.Time) error {
		d.Root.Threshold = n
		return nil
	}
}

// BumpEpoch makes void what was signed for the epoch before: after the store was restored from a backup.
func BumpEpoch() Edit {
	return func(d *Document, _ time.Time) error {
		d.Epoch++
		return nil
	}
}

// SetCAs sets the certificate authorities, each one PEM block, the one that issues first.
func SetCAs(pems ...string) Edit {
	return func(d *Document, _ time.Time) error {
		d.CAs = slices.Clone(pems)
		return nil
	}
}

// SetKey gives a key a role from now until notAfter, or sets until when it has it.
func SetKey(role Role, key PublicKey, notAfter time.Time) Edit {
	return func(d *Document, at time.Time) error {
		i := slices.IndexFunc(d.Keys, func(k RoleKey) bool { return k.Role == role && k.Key == key })
		if i < 0 {
			d.Keys = append(d.Keys, RoleKey{Role: role, Key: key, NotBefore: at, NotAfter: notAfter})
			return nil
		}
		d.Keys[i].NotAfter = notAfter
		return nil
	}
}

// Revoke takes all roles from a key, for ever.
func Revoke(id KeyID) Edit {
	return func(d *Document, at time.Time) error {
		i := slices.IndexFunc(d.Keys, func(k RoleKey) bool { return k.Key.ID() == id })
		if i < 0 {
			return fmt.Errorf("key %s has no role", clipped(string(id)))
		}
		key := d.Keys[i].Key
		d.Keys = slices.DeleteFunc(d.Keys, func(k RoleKey) bool { return k.Key == key })
		d.Revoked = append(d.Revoked, Revocation{key, at})
		return nil
	}
}

// SetFallback sets where hosts ask when no server answers, in the order to try.
func SetFallback(urls ...string) Edit {
	return func(d *Document, _ time.Time) error {
		d.Fallback = slices.Clone(urls)
		return nil
	}
}
