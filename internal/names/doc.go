// Package names answers questions of the DNS about workloads, their ready instances and nodes, and DNS-SD (RFC 6763) among them.
//
// Each namespace is a zone, NAMESPACE.DOMAIN. An Index holds what is there; it never changes. An Edit makes the next one of it, and shares
// everything with it that stays:
//
//	edit := index.Edit()
//	edit.PutInstance(...)   what cannot be a name is refused, with the reason, and all others are served
//	index = edit.Commit(version)
//	index.Answer(question, rotate)
//
// A name is taken apart from its end: the domain, the namespace, the workload, what is below that. So the tree of names is not stored, and
// it cannot disagree with what is there:
//
//	DOMAIN                                        SOA NS A AAAA (of those who answer)
//	NODE.node.DOMAIN                              A AAAA
//	NAMESPACE.DOMAIN                              SOA NS
//	  WORKLOAD                                    A AAAA of the ready instances
//	    INSTANCE, INDEX                           A AAAA TXT of one
//	    _PORT._tcp                                SRV, one for each ready instance
//	  _PORT._tcp                                  PTR to each INSTANCE._PORT._tcp: browsing
//	    WORKLOAD._sub                             the same of one workload
//	    INSTANCE                                  SRV TXT
//	  _services._dns-sd._udp                      PTR to each _PORT._tcp of which an instance is ready
//	  b, db and lb._dns-sd._udp                   PTR to NAMESPACE.DOMAIN: where to browse
//
// A workload that is declared and has no ready instance is there with no data (NODATA); what is not declared is not there (NXDOMAIN). Names
// between two that are there are there too (RFC 8020).
//
// The package does no I/O, knows no clock and no randomness: which instances come first, and which of very many are listed, follows from a
// number that the caller gives. It starts no goroutine; an Index may be read by any number of them.
package names
