// Package verify checks the signatures of commits and tags against a list of keys that are trusted. It is pure: objects, keys
// and the time are arguments.
//
// What is refused, in words: no signature, several, one of a key that is not listed, one that does not fit the content, keys
// that have expired or were revoked, are weak (RSA below 2048 bits, DSA) or were made for something else, signatures over
// SHA-1 or MD5, and SSH signatures of another namespace than "git". A key must be valid now, not when the commit says that it
// was made: whoever holds an old key also writes the date.
//
// Formats: OpenPGP, as gpg writes it (by ProtonMail/go-crypto); SSHSIG, as `ssh-keygen -Y sign` writes it (PROTOCOL.sshsig
// of OpenSSH). X.509 signatures are not known. What of an object is signed: see git's gitformat-signature(5).
package verify
