package content

import (
	"context"
	"io"
)

// Source gives a content from a byte on, and says how long all of it is. The caller verifies what comes, and closes it.
type Source func(ctx context.Context, from int64) (size int64, rest io.ReadCloser, err error)
