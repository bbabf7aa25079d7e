package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// pieceMax is how much of an object goes in one call: as much as the server takes.
const pieceMax = 2 << 20

// PutObject stores bytes on the server by their digest, "sha256:" and hexadecimal digits, from where an earlier call may have ended. told
// is called with how many bytes are there, after each piece.
func (s *Server) PutObject(ctx context.Context, digest string, size int64, from io.ReaderAt, told func(bytes int64)) error {
	var state struct {
		Here   bool  `json:"here"`
		Offset int64 `json:"offset"`
	}
	path := fmt.Sprintf("/content/objects/%s?size=%d", digest, size)
	data, err := s.Raw(ctx, path)
	if err == nil {
		err = json.Unmarshal(data, &state)
	}
	if err != nil {
		return err
	}
	piece := make([]byte, min(pieceMax, size))
	// Each call brings the offset on, or says where it is: somebody else may be putting the same.
	for calls := 2 * (size/pieceMax + 2); !state.Here; calls-- {
		if calls == 0 {
			return fmt.Errorf("put object %s: it does not come to an end at byte %d of %d", digest, state.Offset, size)
		}
		told(state.Offset)
		n := min(pieceMax, size-state.Offset)
		if n < 0 {
			return fmt.Errorf("put object %s: the server has %d bytes of it, and it has %d", digest, state.Offset, size)
		}
		if m, err := from.ReadAt(piece[:n], state.Offset); int64(m) < n {
			return fmt.Errorf("put object %s: read byte %d: %w", digest, state.Offset+int64(m), err)
		}
		data, err := within(ctx, s, func(ctx context.Context) ([]byte, error) {
			return send(ctx, s.client.Verb(http.MethodPatch).RequestURI(fmt.Sprintf("%s&offset=%d", path, state.Offset)).SetHeader("Content-Type", "application/octet-stream").Body(piece[:n]))
		})
		if err == nil {
			err = json.Unmarshal(data, &state)
		}
		if err != nil {
			return err
		}
	}
	told(size)
	return nil
}

// Content makes one call for what is below /content/, and returns the answer.
func (s *Server) Content(ctx context.Context, method, uri string, body []byte) ([]byte, error) {
	return within(ctx, s, func(ctx context.Context) ([]byte, error) {
		request := s.client.Verb(method).RequestURI(uri).SetHeader("Accept", "application/json")
		if method != http.MethodGet {
			request = request.SetHeader("Content-Type", "application/octet-stream").Body(body)
		}
		return send(ctx, request)
	})
}
