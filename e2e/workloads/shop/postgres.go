package main

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// messageMax bounds a message of the database: an answer here is one value.
const messageMax = 64 << 10

// database is asked over a connection for each question, by the protocol of
// https://www.postgresql.org/docs/15/protocol-flow.html, version 3, with simple queries.
type database struct{ address, name, user, password string }

// conn is a connection to it.
type conn struct {
	net.Conn
	r *bufio.Reader
}

// ask returns the first value of the last row that a query returns; empty where there is none.
func (d *database) ask(ctx context.Context, sql string) (string, error) {
	c, err := d.dial(ctx)
	if err != nil {
		return "", err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := c.logIn(d); err != nil {
		return "", err
	}
	if err := c.send('Q', sql+"\x00"); err != nil {
		return "", err
	}
	value := ""
	for {
		switch kind, body, err := c.receive(); {
		case err != nil:
			return "", err
		case kind == 'D' && len(body) >= 6:
			if size := int(int32(binary.BigEndian.Uint32(body[2:]))); size >= 0 && 6+size <= len(body) {
				value = string(body[6 : 6+size])
			}
		case kind == 'Z':
			return value, nil
		}
	}
}

func (d *database) dial(ctx context.Context) (*conn, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", d.address)
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReader(c)}, nil
}

// send sends a message; that which begins a connection has no kind.
func (c *conn) send(kind byte, body string) error {
	var m []byte
	if kind != 0 {
		m = append(m, kind)
	}
	m = binary.BigEndian.AppendUint32(m, uint32(4+len(body)))
	_, err := c.Write(append(m, body...))
	return err
}

// receive receives the next message. One that tells an error is that error.
func (c *conn) receive() (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size < 4 || size > messageMax {
		return 0, nil, fmt.Errorf("the database sends a message of %d bytes", size)
	}
	body = make([]byte, size-4)
	if _, err := io.ReadFull(c.r, body); err != nil {
		return 0, nil, err
	}
	if head[0] == 'E' {
		return 0, nil, errorOf(string(body))
	}
	return head[0], body, nil
}

// errorOf is an error as the database tells it: fields that begin with a letter each.
func errorOf(body string) error {
	for field := range strings.SplitSeq(body, "\x00") {
		if message, ok := strings.CutPrefix(field, "M"); ok {
			return errors.New("database: " + message)
		}
	}
	return errors.New("the database tells an error without a message")
}

// logIn says who asks, and goes on until the database is ready.
func (c *conn) logIn(d *database) error {
	start := binary.BigEndian.AppendUint32(nil, 3<<16)
	if err := c.send(0, string(start)+"user\x00"+d.user+"\x00database\x00"+d.name+"\x00\x00"); err != nil {
		return err
	}
	var s scram
	for {
		kind, body, err := c.receive()
		switch {
		case err != nil:
			return err
		case kind == 'Z':
			return nil
		case kind == 'R' && len(body) >= 4:
			if err := c.authenticate(d, &s, binary.BigEndian.Uint32(body), string(body[4:])); err != nil {
				return err
			}
		}
	}
}

// What the database asks for, of those who log in.
const (
	authOK            = 0
	authSASL          = 10
	authSASLContinue  = 11
	authSASLFinal     = 12
	mechanism         = "SCRAM-SHA-256"
	nonceBytes        = 18
	noChannelBinding  = "n,,"
	noChannelBinding6 = "biws" // in base64
)

func (c *conn) authenticate(d *database, s *scram, asked uint32, text string) error {
	switch asked {
	case authOK:
		return nil
	case authSASL:
		if !strings.Contains(text, mechanism+"\x00") {
			return errors.New("the database does not know " + mechanism)
		}
		first := noChannelBinding + s.begin()
		return c.send('p', mechanism+"\x00"+string(binary.BigEndian.AppendUint32(nil, uint32(len(first))))+first)
	case authSASLContinue:
		answer, err := s.answer(text, d.password)
		if err != nil {
			return err
		}
		return c.send('p', answer)
	case authSASLFinal:
		if subtle.ConstantTimeCompare([]byte(text), []byte("v="+s.proof)) != 1 {
			return errors.New("the database does not know the password itself")
		}
		return nil
	}
	return fmt.Errorf("the database asks for %d, which is not %s", asked, mechanism)
}

// scram shows that both know a password: RFC 5802 and RFC 7677.
type scram struct {
	bare  string // the first message
	nonce string
	proof string // what the database shows
}

func (s *scram) begin() string {
	nonce := make([]byte, nonceBytes)
	rand.Read(nonce)
	s.nonce = base64.StdEncoding.EncodeToString(nonce)
	s.bare = "n=,r=" + s.nonce
	return s.bare
}

// answer answers the first message of the database: r=NONCE,s=SALT,i=ITERATIONS.
func (s *scram) answer(first, password string) (string, error) {
	fields := map[string]string{}
	for field := range strings.SplitSeq(first, ",") {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	salt, err1 := base64.StdEncoding.DecodeString(fields["s"])
	iterations, err2 := strconv.ParseUint(fields["i"], 10, 20)
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	if s.nonce == "" || iterations == 0 || !strings.HasPrefix(fields["r"], s.nonce) {
		return "", errors.New("the database answers somebody else")
	}
	salted, err := pbkdf2.Key(sha256.New, password, salt, int(iterations), sha256.Size)
	if err != nil {
		return "", err
	}
	client := mac(salted, "Client Key")
	stored := sha256.Sum256(client)
	bare := "c=" + noChannelBinding6 + ",r=" + fields["r"]
	all := s.bare + "," + first + "," + bare
	subtle.XORBytes(client, client, mac(stored[:], all))
	s.proof = base64.StdEncoding.EncodeToString(mac(mac(salted, "Server Key"), all))
	return bare + ",p=" + base64.StdEncoding.EncodeToString(client), nil
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
