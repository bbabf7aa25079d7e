package instances

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// The protocol: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md and doc/health-checking.md. A message is a byte that says whether it is
// compressed, its length in four bytes, big endian, and its fields: the name of the service is field 1 of the question, the status field 1 of the
// answer.
const (
	grpcCheck = "/grpc.health.v1.Health/Check"
	grpcHead  = 5
	// grpcBytes bounds the answer: one field of two bytes, and what later versions may add.
	grpcBytes = 1 << 10
	serving   = 1
)

// servingNames are the statuses of grpc.health.v1.
var servingNames = [...]string{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}

// askGRPC asks grpc.health.v1.Health, in HTTP/2 without TLS.
func askGRPC(ctx context.Context, service, address string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+grpcCheck, bytes.NewReader(grpcMessage(service)))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	req.Header.Set("User-Agent", "tako-agent")
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	client, closed := asking(protocols)
	defer closed()
	reply, err := client.Do(req)
	if err != nil {
		return "", trimURL(err)
	}
	defer reply.Body.Close() // what is left of it is nobody's
	body, err := io.ReadAll(io.LimitReader(reply.Body, grpcBytes+1))
	if err == nil && len(body) > grpcBytes {
		err = errNoHealth
	}
	if err != nil {
		return "", err
	}
	if reply.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the health service answers %s", reply.Status)
	}
	code, message := reply.Trailer.Get("Grpc-Status"), reply.Trailer.Get("Grpc-Message")
	if code == "" { // an answer without a message has it in front
		code, message = reply.Header.Get("Grpc-Status"), reply.Header.Get("Grpc-Message")
	}
	if code != "0" {
		return "", fmt.Errorf("the health service answers with status %.16q %.128s", code, line(message))
	}
	status, err := grpcStatus(body)
	if err != nil {
		return "", err
	}
	name := strconv.FormatUint(status, 10)
	if status < uint64(len(servingNames)) {
		name = servingNames[status]
	}
	if status != serving {
		return "", errors.New("the health service says " + name)
	}
	return name, nil
}

// grpcMessage is the question about a service.
func grpcMessage(service string) []byte {
	var fields []byte
	if service != "" {
		fields = append([]byte{1<<3 | 2}, binary.AppendUvarint(nil, uint64(len(service)))...)
		fields = append(fields, service...)
	}
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(fields)))
	return append(head, fields...)
}

var errNoHealth = errors.New("what answers is no grpc.health.v1.Health")

// grpcStatus reads the status out of an answer; one that does not have it says 0.
func grpcStatus(answer []byte) (status uint64, err error) {
	if len(answer) < grpcHead || answer[0] != 0 || uint64(binary.BigEndian.Uint32(answer[1:])) != uint64(len(answer)-grpcHead) {
		return 0, errNoHealth
	}
	for rest := answer[grpcHead:]; len(rest) > 0; {
		tag, n := binary.Uvarint(rest)
		if n <= 0 {
			return 0, errNoHealth
		}
		rest = rest[n:]
		var value uint64
		switch tag & 7 {
		case 0: // a number
			if value, n = binary.Uvarint(rest); n <= 0 {
				return 0, errNoHealth
			}
			rest = rest[n:]
			if tag>>3 == 1 {
				status = value
			}
		case 1, 5: // eight bytes, four bytes
			size := map[uint64]int{1: 8, 5: 4}[tag&7]
			if len(rest) < size {
				return 0, errNoHealth
			}
			rest = rest[size:]
		case 2: // bytes
			if value, n = binary.Uvarint(rest); n <= 0 || value > uint64(len(rest)-n) {
				return 0, errNoHealth
			}
			rest = rest[n+int(value):]
		default:
			return 0, errNoHealth
		}
	}
	return status, nil
}
