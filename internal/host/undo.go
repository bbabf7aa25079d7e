package host

import (
	"context"
	"errors"

	"tako.dev/tako/declare"
	"tako.dev/tako/internal/reason"
)

// Undo is the Remove of a type whose resources can undo themselves: to what they were before, as original has it, or with delete to what a
// host is without them, for which undo gets nil. It is RestoreLost where nothing is known of what was there.
func Undo(ctx context.Context, doing string, how declare.OnRemove, original []byte, undo func(ctx context.Context, original []byte) error) error {
	if err := ctx.Err(); err != nil {
		return reason.Ended(doing, err)
	}
	switch {
	case how == declare.OnRemoveDelete:
		return undo(ctx, nil)
	case how == declare.OnRemoveRestore && len(original) > 0:
		return undo(ctx, original)
	}
	return &reason.Error{Code: reason.RestoreLost, Doing: "undo: " + doing, Cause: errors.New("nothing is known of what was there")}
}
