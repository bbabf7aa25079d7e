package edition

import (
	"errors"
	"fmt"

	"tako.dev/tako/internal/catalog"
	"tako.dev/tako/internal/reason"
	"tako.dev/tako/internal/transfer/wire"
	"tako.dev/tako/internal/trust"
)

// protocol is the version of editions.
const protocol = 1

// purpose keeps a signature under an edition from being one under anything else.
const purpose = "tako/names/1\n"

// Edition is what is said of all rows at one moment.
type Edition struct {
	Protocol uint            `cbor:"1,keyasint"`
	Key      trust.KeyID     `cbor:"2,keyasint"` // that has signed it, as heads are signed
	Cluster  trust.ClusterID `cbor:"3,keyasint"`
	Mark     wire.NamesMark  `cbor:"4,keyasint"`
	Root     catalog.Digest  `cbor:"5,keyasint"`
	Rows     uint64          `cbor:"6,keyasint"`
	Issued   int64           `cbor:"7,keyasint"`           // milliseconds since 1970
	Left     uint64          `cbor:"8,keyasint,omitempty"` // how many rows there are above RowsMax, which are not in it
}

// signed is an edition as it travels: the bytes that were signed, with all fields that this version does not know.
type signed struct {
	_         struct{} `cbor:",toarray"`
	Body      []byte
	Signature []byte
}

func (e Edition) sign(key *trust.SigningKey) ([]byte, error) {
	body, err := wire.Encode(e)
	if err != nil {
		return nil, err
	}
	return wire.Encode(signed{Body: body, Signature: key.Sign(append([]byte(purpose), body...))})
}

// verify reads a signed edition and believes it, if it is of the cluster and signed by one of the keys. The errors are StateCorrupt and HeadRefused.
func verify(data []byte, keys catalog.Keys, cluster trust.ClusterID) (e Edition, err error) {
	var s signed
	if err := wire.Decode(data, &s); err != nil {
		return e, err
	}
	if err := wire.Decode(s.Body, &e); err != nil {
		return e, err
	}
	refused := func(cause error) (Edition, error) {
		return Edition{}, &reason.Error{Code: reason.HeadRefused, Doing: "verify an edition of the names", Cause: cause}
	}
	switch {
	case e.Cluster != cluster:
		return refused(fmt.Errorf("it is of cluster %s, not of %s", e.Cluster, cluster))
	case e.Protocol != protocol:
		return refused(fmt.Errorf("its protocol is %d", e.Protocol))
	case e.Mark == (wire.NamesMark{}):
		return refused(errors.New("it has no mark"))
	case e.Rows > RowsMax:
		return refused(fmt.Errorf("it has %d rows, at most %d are taken", e.Rows, RowsMax))
	}
	for _, k := range keys {
		if k.ID() == e.Key && k.Verify(append([]byte(purpose), s.Body...), s.Signature) {
			return e, nil
		}
	}
	return refused(fmt.Errorf("no key that may sign heads has signed it, as key %s", e.Key))
}
