# What tako asks of dnf 4, through its own library. The one argument is a question as JSON, the line of the output that begins with tako-answer is
# the answer.
# Everything else that is printed is of dnf, rpm and the scripts of packages, for a person to read.
import contextlib
import ctypes
import glob
import json
import os
import sys

import dnf
import dnf.const
import dnf.exceptions
import dnf.lock
import dnf.yum.rpmtrans
import libdnf.transaction

# The library writes a log of its solver; what only asks writes nothing.
dnf.const.LOG_HAWKEY = "/dev/null"


class Display(dnf.yum.rpmtrans.TransactionDisplay):
    """Says what the scripts of packages say, and what fails."""

    def __init__(self):
        super().__init__()
        self.failed = []

    def scriptout(self, msgs):
        if msgs:
            print((msgs.decode("utf-8", "replace") if isinstance(msgs, bytes) else str(msgs)).rstrip())

    def error(self, message):
        print("error: " + str(message).rstrip())
        self.failed.append(str(message).strip())


def evr(p):
    return p.evr if p.epoch else "%s-%s" % (p.version, p.release)


def open_base(q):
    base = dnf.Base()
    conf = base.conf
    subst = conf.substitutions
    if q["root"] != "/":
        conf.installroot = q["root"]
    subst["releasever"] = dnf.rpm.detect_releasever(conf.installroot) or ""
    if q["root"] != "/":
        for option in ("cachedir", "logdir", "persistdir"):
            conf.prepend_installroot(option)
        conf.reposdir = [q["root"] + "/etc/yum.repos.d"]
        conf.varsdir = [q["root"] + "/etc/dnf/vars"]
        conf.pluginconfpath = [q["root"] + "/etc/dnf/plugins"]
    conf.config_file_path = q["root"].rstrip("/") + dnf.const.CONF_FILENAME
    try:
        conf.read(conf.config_file_path)
    except dnf.exceptions.ConfigError as e:
        print("warning: %s" % e)
    subst.update_from_etc(conf.installroot, varsdir=conf.varsdir)
    conf.assumeyes = True
    conf.exit_on_lock = True
    conf.best = True
    conf.clean_requirements_on_remove = False
    if q.get("recommends") is not None:
        conf.install_weak_deps = q["recommends"]
    # Of the plugins, those that bring repositories and those that keep versions; others are for people who look.
    wanted = ["subscription-manager", "product-id", "spacewalk", "amazon-id"] + (["versionlock"] if q.get("locks") else [])
    there = {os.path.basename(p)[:-len(".py")].replace("_", "-") for d in conf.pluginpath for p in glob.glob(d + "/*.py")}
    base.init_plugins(disabled_glob=["*"], enable_plugins=[w for w in wanted if w in there])
    base.pre_configure_plugins()
    base.read_all_repos()
    base.configure_plugins()
    return base


def known(base):
    """Loads what was fetched, and fetches nothing."""
    for repo in list(base.repos.iter_enabled()):
        if not os.path.exists(repo._repo.getCachedir() + "/repodata/repomd.xml"):
            repo.disable()
    base.fill_sack_from_repos_in_cache(load_system_repo=True)


def offers(base, q):
    known(base)
    answer = {}
    for name in q["names"]:
        there = base.sack.query().installed().filterm(name=name)
        found = base.sack.query().available().filterm(name=name)
        arches = base.sack.list_arches()
        best = sorted((p for p in found if p.arch == "noarch" or p.arch in arches), reverse=True)
        versions = []
        for p in best:
            if evr(p) not in versions:
                versions.append(evr(p))
        newest = max(list(best) + list(there), default=None)
        if newest is not None:
            answer[name] = {"candidate": evr(newest), "versions": versions}
    return {"offers": answer}


def update(base, q):
    failed = []
    with dnf.lock.build_metadata_lock(base.conf.cachedir, True):
        for repo in base.repos.iter_enabled():
            repo._repo.expire()
            try:
                repo.load()
            except dnf.exceptions.RepoError as e:
                print("error: %s" % e)
                if not repo.skip_if_unavailable:
                    failed.append(str(e))
    if failed:
        return {"error": failed[0]}
    return {}


def mark(base, step):
    name, version = step["name"], step.get("version")
    there = base.sack.query().installed().filterm(name=name)
    if step.get("remove"):
        base.remove(name)
        return
    if not version:
        base.install(name)
        return
    found = [p for p in base.sack.query().available().filterm(name=name) if evr(p) == version]
    if not found:
        raise dnf.exceptions.MarkingError("no repository has %s-%s" % (name, version))
    package = sorted(found, key=lambda p: (p.arch == "noarch", p.arch == base.conf.substitutions["arch"]))[-1]
    if there and max(there) > package:
        base.package_downgrade(package, strict=True)
    elif there:
        base.package_upgrade(package)
    else:
        base.package_install(package, strict=True)


def resolve(base, q):
    known(base)
    for step in q["steps"]:
        mark(base, step)
    base.resolve(allow_erasing=any(s.get("remove") for s in q["steps"]))
    removed = {p.name: evr(p) for p in base.transaction.remove_set}
    installed = {p.name: evr(p) for p in base.transaction.install_set}
    moves = [{"name": n, "from": removed.get(n, ""), "to": v} for n, v in sorted(installed.items())]
    return {"removes": sorted(n for n in removed if n not in installed), "changes": moves}


def check_signatures(base, packages):
    for p in packages:
        result, message = base.package_signature_check(p)
        if result == 1:
            base.package_import_key(p, fullaskcb=lambda info: True)
        elif result != 0:
            raise dnf.exceptions.Error(message)


def change(base, q):
    answer = resolve(base, q)
    packages = list(base.transaction.install_set)
    try:
        base.download_packages(packages)
    except dnf.exceptions.DownloadError as e:
        return {"error": str(e), "stale": True}
    check_signatures(base, packages)
    display = Display()
    base.do_transaction(display)
    bad = [t.pkg.name for t in base.transaction if t.state == libdnf.transaction.TransactionItemState_ERROR]
    if display.failed or bad:
        answer["error"] = (display.failed + ["the scripts of %s failed" % ", ".join(sorted(set(bad)))])[0]
    return answer


def main():
    q = json.loads(sys.argv[1])
    if q["do"] in ("offers", "try"):
        # What was fetched is only read: nobody is locked out of it, and no file of a lock is left or seen.
        dnf.lock.build_metadata_lock = lambda *_: contextlib.nullcontext()
    try:
        with open_base(q) as base:
            answer = {"offers": offers, "update": update, "try": resolve, "change": change}[q["do"]](base, q)
    except dnf.exceptions.ProcessLockError as e:
        answer = {"locked": int(e.pid)}
    except (dnf.exceptions.Error, OSError, ValueError) as e:
        answer = {"error": str(e).strip() or repr(e)}
    ctypes.CDLL(None).fflush(None)  # what rpm has printed comes first
    print("\ntako-answer: " + json.dumps(answer))


main()
