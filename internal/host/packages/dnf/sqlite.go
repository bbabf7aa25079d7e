package dnf

import (
	"encoding/binary"
	"errors"

	"io"
)

// errDamaged says that a database is not as SQLite writes it, or was written while it was read.
var errDamaged = errors.New("the database is damaged, or is being written")

const (
	sqliteMagic  = "SQLite format 3\x00"
	sqliteHead   = 100 // bytes of the first page before its tree
	pageSizeMin  = 512
	pageSizeMax  = 64 << 10
	pagesMax     = 1 << 22 // 16 GiB of pages of 4 KiB: ours, far above any real one
	treeDepthMax = 20      // of SQLite
	visitsMax    = 1 << 18 // pages of one tree, without what rows have beside it: ours, a thousand times a real one
	interiorPage = 0x05    // of a table
	leafPage     = 0x0d
	walHead      = 32
	walFrameHead = 24
)

// sqlite reads tables of a SQLite file, https://sqlite.org/fileformat.html, with what its write-ahead log has. It takes no lock: who calls it
// looks whether the files were written meanwhile.
type sqlite struct {
	file     io.ReaderAt
	wal      io.ReaderAt // nil for none
	size     int         // of a page
	reserved int         // bytes at the end of each page that are not SQLite's
	pages    uint32
	visits   int
	frames   map[uint32]int64 // pages that are in the log, committed, and where
}

// openSQLite reads the heads of a database and of its log.
func openSQLite(file, wal io.ReaderAt) (*sqlite, error) {
	head := make([]byte, sqliteHead)
	if _, err := file.ReadAt(head, 0); err != nil || string(head[:len(sqliteMagic)]) != sqliteMagic {
		return nil, errDamaged
	}
	db := &sqlite{file: file, wal: wal, size: int(binary.BigEndian.Uint16(head[16:])), reserved: int(head[20]), pages: pagesMax, frames: map[uint32]int64{}}
	if db.size == 1 {
		db.size = pageSizeMax
	}
	if db.size < pageSizeMin || db.size&(db.size-1) != 0 || db.size-db.reserved < 480 {
		return nil, errDamaged
	}
	if wal != nil {
		db.readLog()
	}
	return db, nil
}

// readLog finds the committed frames of the log. It ends where a frame does not follow from those before it: what is there is older, or only
// half written.
func (db *sqlite) readLog() {
	head := make([]byte, walHead)
	if _, err := db.wal.ReadAt(head, 0); err != nil {
		return
	}
	var order binary.ByteOrder = binary.LittleEndian
	switch binary.BigEndian.Uint32(head) {
	case 0x377f0682:
	case 0x377f0683:
		order = binary.BigEndian
	default:
		return
	}
	s0, s1 := walSum(order, 0, 0, head[:24])
	if int(binary.BigEndian.Uint32(head[8:])) != db.size || s0 != binary.BigEndian.Uint32(head[24:]) || s1 != binary.BigEndian.Uint32(head[28:]) {
		return
	}
	pending := map[uint32]int64{}
	frame := make([]byte, walFrameHead+db.size)
	for at := int64(walHead); ; at += int64(len(frame)) {
		if _, err := db.wal.ReadAt(frame, at); err != nil {
			return
		}
		s0, s1 = walSum(order, s0, s1, frame[:8])
		s0, s1 = walSum(order, s0, s1, frame[walFrameHead:])
		if string(frame[8:16]) != string(head[16:24]) || s0 != binary.BigEndian.Uint32(frame[16:]) || s1 != binary.BigEndian.Uint32(frame[20:]) {
			return
		}
		pending[binary.BigEndian.Uint32(frame)] = at + walFrameHead
		if binary.BigEndian.Uint32(frame[4:]) != 0 { // the last one of a commit
			for page, at := range pending {
				db.frames[page] = at
			}
			clear(pending)
		}
	}
}

// walSum is the checksum of the log, section 4.2 of the format.
func walSum(order binary.ByteOrder, s0, s1 uint32, b []byte) (uint32, uint32) {
	for ; len(b) >= 8; b = b[8:] {
		s0 += order.Uint32(b) + s1
		s1 += order.Uint32(b[4:]) + s0
	}
	return s0, s1
}

// page reads a page; they are counted from 1.
func (db *sqlite) page(n uint32) ([]byte, error) {
	if n == 0 || n > db.pages {
		return nil, errDamaged
	}
	b := make([]byte, db.size)
	var err error
	if at, logged := db.frames[n]; logged {
		_, err = db.wal.ReadAt(b, at)
	} else {
		_, err = db.file.ReadAt(b, int64(n-1)*int64(db.size))
	}
	if errors.Is(err, io.EOF) {
		return nil, errDamaged
	}
	return b, err
}

// table calls yield with each row of a table by name: a reader of its record. It returns false for no such table.
func (db *sqlite) table(name string, yield func(*record) error) (found bool, err error) {
	root := uint32(0)
	err = db.walk(1, treeDepthMax, func(r *record) error {
		columns, err := r.columns(4) // type, name, tbl_name, rootpage
		if err != nil {
			return err
		}
		if string(columns[0].bytes) == "table" && string(columns[1].bytes) == name {
			root = uint32(columns[3].number)
		}
		return nil
	})
	if err != nil || root == 0 {
		return false, err
	}
	return true, db.walk(root, treeDepthMax, yield)
}

// walk visits the rows of a tree in the order of their keys.
func (db *sqlite) walk(n uint32, depth int, yield func(*record) error) error {
	if db.visits++; depth == 0 || db.visits > visitsMax {
		return errDamaged
	}
	page, err := db.page(n)
	if err != nil {
		return err
	}
	head := page
	if n == 1 {
		head = page[sqliteHead:]
	}
	kind, cells := head[0], int(binary.BigEndian.Uint16(head[3:]))
	pointers := 8
	if kind == interiorPage {
		pointers = 12
	}
	if kind != interiorPage && kind != leafPage || pointers+2*cells > len(head) {
		return errDamaged
	}
	for i := range cells {
		at := int(binary.BigEndian.Uint16(head[pointers+2*i:]))
		if at+4 > len(page) {
			return errDamaged
		}
		if kind == interiorPage {
			err = db.walk(binary.BigEndian.Uint32(page[at:]), depth-1, yield)
		} else {
			err = db.row(page[at:len(page)-db.reserved], yield)
		}
		if err != nil {
			return err
		}
	}
	if kind == interiorPage {
		return db.walk(binary.BigEndian.Uint32(head[8:]), depth-1, yield)
	}
	return nil
}

// row reads a cell of a leaf.
func (db *sqlite) row(cell []byte, yield func(*record) error) error {
	size, n := varint(cell)
	_, m := varint(cell[min(n, len(cell)):])
	if n == 0 || m == 0 || size < 0 {
		return errDamaged
	}
	cell = cell[n+m:]
	local := db.local(size)
	if local > int64(len(cell)) {
		return errDamaged
	}
	r := &record{db: db, size: size, have: cell[:local]}
	if local < size {
		if local+4 > int64(len(cell)) {
			return errDamaged
		}
		r.next = binary.BigEndian.Uint32(cell[local:])
	}
	return yield(r)
}

// local is how much of a payload is on the page of a leaf, section 1.6 of the format.
func (db *sqlite) local(size int64) int64 {
	usable := int64(db.size - db.reserved)
	most, least := usable-35, (usable-12)*32/255-23
	if size <= most {
		return size
	}
	if k := least + (size-least)%(usable-4); k <= most {
		return k
	}
	return least
}

// record is one row, of which only as much is read as is asked for.
type record struct {
	db   *sqlite
	size int64
	have []byte // its beginning
	next uint32 // the page with what follows
}

// upTo returns the first n bytes, or all.
func (r *record) upTo(n int64) ([]byte, error) {
	n = min(n, r.size)
	for int64(len(r.have)) < n {
		page, err := r.db.page(r.next)
		if err != nil {
			return nil, err
		}
		r.next = binary.BigEndian.Uint32(page)
		more := page[4 : r.db.size-r.db.reserved]
		r.have = append(r.have[:len(r.have):len(r.have)], more[:min(int64(len(more)), r.size-int64(len(r.have)))]...)
	}
	return r.have[:n], nil
}

// column is where a value of a record is; bytes and number are set by columns.
type column struct {
	at, size int64
	bytes    []byte // of a text or blob
	number   int64  // of an integer
	integer  bool
}

// layout reads where the first values of a record are.
func (r *record) layout(most int) ([]column, error) {
	const headMax = 64 // tables that are read have few columns
	b, err := r.upTo(headMax)
	if err != nil {
		return nil, err
	}
	total, n := varint(b)
	if n == 0 || total < int64(n) || total > int64(len(b)) {
		return nil, errDamaged
	}
	head, at := b[n:total], total
	var columns []column
	for len(head) > 0 && len(columns) < most {
		kind, n := varint(head)
		if n == 0 || kind < 0 {
			return nil, errDamaged
		}
		head = head[n:]
		c := column{at: at, integer: kind >= 1 && kind <= 6 || kind == 8 || kind == 9}
		switch {
		case kind >= 12:
			c.size = (kind - 12) / 2
		case kind == 7, kind == 6:
			c.size = 8
		case kind == 5:
			c.size = 6
		case kind <= 4:
			c.size = kind
		case kind == 9:
			c.number = 1
		}
		if at += c.size; at > r.size {
			return nil, errDamaged
		}
		columns = append(columns, c)
	}
	return columns, nil
}

// columns reads the first values of a small record.
func (r *record) columns(n int) ([]column, error) {
	columns, err := r.layout(n)
	if err == nil && len(columns) < n {
		err = errDamaged
	}
	if err != nil {
		return nil, err
	}
	end := columns[n-1].at + columns[n-1].size
	b, err := r.upTo(end)
	if err != nil {
		return nil, err
	}
	for i := range columns {
		c := &columns[i]
		c.bytes = b[c.at : c.at+c.size]
		if c.integer {
			for _, d := range c.bytes {
				c.number = c.number<<8 | int64(d)
			}
		}
	}
	return columns, nil
}

// varint reads a number of one to nine bytes, the first ones first; n is 0 where there is none.
func varint(b []byte) (v int64, n int) {
	const last = 8
	for i, c := range b {
		if i == last {
			return v<<8 | int64(c), i + 1
		}
		if v = v<<7 | int64(c&0x7f); c&0x80 == 0 {
			return v, i + 1
		}
	}
	return 0, 0
}
