package dnf

import (
	"errors"
	"io/fs"
	"os"
	"sync"
)

const (
	databaseFile  = "rpmdb.sqlite"
	logSuffix     = "-wal"
	databaseTable = "Packages" // hnum, blob
	// readAttempts is how often the database is read when it is written meanwhile.
	readAttempts = 5
)

// database is rpm's, as far as anybody has asked for it. One read serves everybody until the files change. Its methods may be called from
// several goroutines.
type database struct {
	find func() string // its directory

	mu    sync.Mutex // guards what follows
	at    databaseStamp
	known map[string]string // versions of the names that were asked for; empty for what is not installed
}

// databaseStamp is what tells one state of the files from another. What is written goes to the log first.
type databaseStamp struct {
	dir       string
	file, log stamp
}

func (db *database) stamp() (databaseStamp, error) {
	s := databaseStamp{dir: db.find()}
	var err, logErr error
	s.file, err = stampOf(s.dir + "/" + databaseFile)
	s.log, logErr = stampOf(s.dir + "/" + databaseFile + logSuffix)
	return s, errors.Join(err, logErr)
}

// look returns the versions of packages, read anew if fresh or if the files have changed.
func (db *database) look(names []string, fresh bool) ([]string, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	now, err := db.stamp()
	if err != nil {
		return nil, err
	}
	unknown := false
	for _, name := range names {
		_, known := db.known[name]
		unknown = unknown || !known
	}
	if fresh || unknown || now != db.at {
		known := make(map[string]string, len(names))
		for _, name := range names {
			known[name] = ""
		}
		if now == db.at { // two who ask in turn do not drive one another out
			for name := range db.known {
				known[name] = ""
			}
		}
		if err := db.readLocked(known); err != nil {
			return nil, err
		}
	}
	versions := make([]string, len(names))
	for i, name := range names {
		versions[i] = db.known[name]
	}
	return versions, nil
}

// readLocked fills in the versions of known. It is done when the files are afterwards as they were before.
func (db *database) readLocked(known map[string]string) error {
	var err error
	for range readAttempts {
		var before, after databaseStamp
		if before, err = db.stamp(); err != nil {
			return err
		}
		clearValues(known)
		err = readInstalled(before.dir, func(p installed) {
			if v, asked := known[p.name]; asked && (v == "" || compare(p.version, v) > 0) {
				known[p.name] = p.version // of several, such as kernels, the newest counts
			}
		})
		after, stampErr := db.stamp()
		if err == nil && stampErr == nil && before == after {
			db.at, db.known = before, known
			return nil
		}
		err = errors.Join(err, stampErr)
	}
	if err == nil {
		err = errDamaged
	}
	return err
}

func clearValues(m map[string]string) {
	for name := range m {
		m[name] = ""
	}
}

// readInstalled yields all packages of a database. Where there is none, nothing is installed.
func readInstalled(dir string, yield func(installed)) error {
	file, err := os.Open(dir + "/" + databaseFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	log, err := os.Open(dir + "/" + databaseFile + logSuffix)
	var db *sqlite
	switch {
	case errors.Is(err, fs.ErrNotExist):
		db, err = openSQLite(file, nil)
	case err == nil:
		defer log.Close()
		db, err = openSQLite(file, log)
	}
	if err != nil {
		return err
	}
	return packagesOf(db, yield)
}

// packagesOf yields all packages of a database that is open.
func packagesOf(db *sqlite, yield func(installed)) error {
	found, err := db.table(databaseTable, func(r *record) error {
		const blob = 1
		columns, err := r.layout(blob + 1)
		if err != nil {
			return err
		}
		if len(columns) <= blob {
			return errDamaged
		}
		c := columns[blob]
		p, err := parseHeader(c.size, func(n int64) ([]byte, error) {
			b, err := r.upTo(c.at + min(n, c.size))
			if err != nil || int64(len(b)) < c.at {
				return nil, orDamaged(err)
			}
			return b[c.at:], nil
		})
		if err == nil {
			yield(p)
		}
		return err
	})
	if err == nil && !found {
		return errDamaged
	}
	return err
}
