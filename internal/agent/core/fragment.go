package core

import (
	"fmt"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/converge"
	"tako.dev/tako/internal/reason"
)

// assemble puts the pieces of files together: from then on the file is what all of them make, also for who compares what is desired. A
// piece that no file takes cannot be had, nor a file of which a piece cannot.
func (c *compiler) assemble() {
	pieces := map[string][]converge.ID{}
	for i := range c.in.Entries {
		if f := c.items[i].Resource.Fragment; f != nil {
			pieces[f.Path] = append(pieces[f.Path], converge.ID(i))
		}
	}
	for id := range c.in.Entries {
		if it := &c.items[id]; it.Resource.File != nil && it.Resource.File.Fragments {
			c.fill(converge.ID(id), pieces[it.Resource.File.Path])
			delete(pieces, it.Resource.File.Path)
		}
	}
	for _, ids := range pieces {
		for _, id := range ids {
			c.items[id].Err, c.items[id].Unfit = Untaken(c.items[id].Resource.Fragment), true
		}
	}
}

// fill makes a file of its pieces.
func (c *compiler) fill(file converge.ID, ids []converge.ID) {
	it := &c.items[file]
	var list []declare.Piece
	for _, id := range ids {
		piece := &c.items[id]
		switch {
		case piece.When != "":
		case piece.Err != nil:
			it.Err, it.Unfit = &reason.Error{Code: piece.Err.Code, Doing: "make " + it.Title + " of its pieces", Cause: piece.Err, Hint: piece.Err.Hint}, piece.Unfit
		default:
			list = append(list, declare.Piece{Claim: piece.Claim, Fragment: piece.Resource.Fragment})
		}
	}
	whole := *it.Resource
	if err := Assemble(&whole, list); err != nil {
		it.Err, it.Unfit = reason.Of(err), true
		return
	}
	it.Resource = &whole
	digest, err := c.in.Entries[file].DesireOf(whole)
	if err != nil {
		it.Err = reason.Of(err)
		return
	}
	c.vertices[file].Digest = converge.Digest(digest)
}

// Untaken is the error of a piece that no file takes.
func Untaken(f *declare.Fragment) *reason.Error {
	return &reason.Error{Code: reason.FragmentUntaken, Doing: fmt.Sprintf("make a piece of %q", f.Path), Hint: "declare that file for this host with `fragments: true`"}
}

// Assemble fills a file of pieces; it changes nothing else. A file that becomes too large is BodyTooLarge.
func Assemble(r *declare.Resource, pieces []declare.Piece) error {
	file := r.File.Assembled(pieces)
	if len(file.Content) > declare.BodyBytesMax {
		return &reason.Error{Code: reason.BodyTooLarge, Doing: "make " + r.Title() + " of its pieces",
			Cause: fmt.Errorf("%d bytes, the limit is %d", len(file.Content), declare.BodyBytesMax)}
	}
	r.File = file
	return nil
}

// standing is what a claim stands for in the order: a piece for its file, so that who comes after the piece, or is told by it, comes
// after what was written, and is told by that.
func (c *compiler) standing(claim declare.Claim) declare.Claim {
	id, known := c.ids[claim]
	if !known || c.items[id].Resource.Fragment == nil {
		return claim
	}
	file := declare.Claim{Kind: declare.ClaimPath, ID: c.items[id].Resource.Fragment.Path}
	if at, known := c.ids[file]; !known || c.items[at].Resource.File == nil || !c.items[at].Resource.File.Fragments {
		return claim
	}
	return file
}
