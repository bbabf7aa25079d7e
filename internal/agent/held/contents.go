package held

import (
	"errors"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
)

// Contents is what is in a catalog.
type Contents struct {
	List      catalog.List
	Layers    []catalog.DecodedLayer // what is acted upon, without the node's own
	Templates []catalog.Template     // what the instances of Own run, and what others of their revisions have run
	Own       catalog.Own
	Delivered int // entries of all layers that are delivered and not acted upon
}

// Unusable is an error that is in a state itself: reading it once more, or from elsewhere, will not help.
type Unusable struct{ Err error }

func (u Unusable) Error() string { return u.Err.Error() }

// Unwrap returns the error.
func (u Unusable) Unwrap() error { return u.Err }

// errStopped ends the reading of a layer of which enough is known.
var errStopped = errors.New("stopped")

// Contents reads a whole catalog. The errors are StateCorrupt where something of it is not here, Unusable where something in it cannot
// be right, and those of the disk.
func (s *Store) Contents(root catalog.Digest) (Contents, error) {
	c, err := s.Own(root)
	if err != nil {
		return c, err
	}
	for _, l := range c.List {
		if !l.Config() {
			continue
		}
		d := catalog.DecodedLayer{ID: l.ID, Priority: l.Priority}
		err := s.Rows(l.Root, func(key catalog.Digest, body []byte) error {
			e, err := catalog.DecodeBody(key, body)
			if err != nil {
				return Unusable{err}
			}
			d.Entries = append(d.Entries, e)
			return nil
		})
		if err != nil {
			return c, err
		}
		all, err := s.whole(l.Root)
		if err != nil {
			return c, err
		}
		c.Delivered += all.Len() - len(d.Entries)
		c.Layers = append(c.Layers, d)
	}
	return c, nil
}

// template adds what the layer of a workload's revision has. One of which this version does not know all is no reason to refuse a state: its instances
// say why they do not run.
func (s *Store) template(c *Contents, l catalog.Layer) error {
	t, known := catalog.TemplateOf(l.ID)
	if _, err := s.whole(l.Root); err != nil || !known {
		return err
	}
	body, err := s.Body(l.Root, t.Key())
	if err != nil {
		return err
	}
	if body == nil {
		t.Unsupported = &reason.Error{Code: reason.LaterVersion, Doing: "read " + l.ID, Cause: errors.New("there is no template in it"), Hint: "bring tako-agent on this host up to date"}
	} else if t, err = catalog.DecodeTemplate(l.ID, body); err != nil {
		return Unusable{err}
	}
	c.Templates = append(c.Templates, t)
	return nil
}

// Own reads the list of a catalog and what in it is the node's own, with the templates of its instances, without the rest. The errors are those of
// Contents.
func (s *Store) Own(root catalog.Digest) (c Contents, err error) {
	if c.List, err = s.Catalog(root); err != nil {
		return c, err
	}
	for _, l := range c.List {
		if l.Priority != catalog.OwnPriority {
			if !l.Config() {
				if err := s.template(&c, l); err != nil {
					return c, err
				}
			}
			continue
		}
		var failed error
		c.Own, err = catalog.DecodeOwn(func(yield func(catalog.Digest, []byte) bool) {
			failed = s.Rows(l.Root, func(key catalog.Digest, body []byte) error {
				if !yield(key, body) {
					return errStopped
				}
				return nil
			})
		})
		switch {
		case failed != nil && !errors.Is(failed, errStopped):
			return c, failed
		case err != nil:
			return c, Unusable{err}
		}
	}
	return c, nil
}
