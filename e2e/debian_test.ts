/** The Debian package, installed, upgraded and purged by dpkg in a copy of this machine's root, beside the Go plugins' package. */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { pluginNames } from "../plugins/registry.ts";
import { testWith } from "../testing/binary.ts";
import { DPKG_INSTALL, newDebianPackages } from "../testing/debian_package.ts";
import { newNamespaces, runInNetns } from "../testing/netns.ts";

const PROGRAMS = [
  "dpkg",
  "dpkg-divert",
  "deb-systemd-helper",
  "cc",
  "unshare",
  "chroot",
  "ip",
  "nft",
  "systemctl",
  "/usr/lib/cni/bridge",
];
const NETWORK = {
  cniVersion: "1.1.0",
  name: "lan",
  plugins: [
    { type: "bridge", bridge: "lan0", ipMasq: true, ipam: { type: "host-local", subnet: "10.95.0.0/24" } },
    { type: "firewall" },
  ],
};
const CONF_DIR = "--conf-dir /packages/net.d";
/** What a package may leave neither in nor out of these directories. */
const LISTING = "find /usr /lib/systemd /etc -xdev | sort; cat /var/lib/dpkg/diversions; sha256sum /usr/lib/cni/bridge";

interface Root extends Disposable {
  /** Runs a script of the shell there. @throws {Error} with its output, if it fails */
  run(script: string, host?: Netns): string;
}

/** A copy of the machine's root whose changes go with its scope. Its mounts are those of a process that holds them. */
async function newRoot(packages: string): Promise<Root> {
  const directory = mkdtempSync(join(tmpdir(), "cni-debian-"));
  const script = `
    mount -t tmpfs none "$1"; cd "$1"; mkdir upper work root
    mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
    mount -t proc proc root/proc; mount --rbind /dev root/dev; mount -t tmpfs none root/run
    mkdir -p root/packages; mount --bind "$2" root/packages
    echo ready; exec sleep infinity`;
  const holder = Bun.spawn(["unshare", "-m", "sh", "-ec", script, "sh", directory, packages], {
    stdin: "ignore",
    stdout: "pipe",
  });
  const { value } = await holder.stdout.getReader().read();
  expect(new TextDecoder().decode(value)).toBe("ready\n");
  const enter = ["nsenter", `--mount=/proc/${holder.pid}/ns/mnt`, "chroot", join(directory, "root"), "sh", "-ec"];
  return {
    run(text, host) {
      const env = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", DEBIAN_FRONTEND: "noninteractive", LC_ALL: "C" };
      const start = () => Bun.spawnSync([...enter, text], { env, stdin: "ignore", stderr: "pipe" });
      const { exitCode, stdout, stderr } = host ? host.run(start) : start();
      if (exitCode !== 0) throw new Error(`${text} ended with ${exitCode}: ${stdout}${stderr}`);
      return stdout.toString();
    },
    [Symbol.dispose]() {
      holder.kill("SIGKILL");
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

describe("the Debian package", () => {
  const resources = new DisposableStack();
  let root: Root;
  let before = "";
  beforeAll(async () => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    const packages = resources.use(newDebianPackages(["0.1.0", "0.2.0"])).directory;
    mkdirSync(join(packages, "net.d"));
    writeFileSync(join(packages, "net.d/lan.conflist"), JSON.stringify(NETWORK));
    root = resources.use(await newRoot(packages));
    // As in a root without it.
    root.run("if dpkg -s cni >/dev/null 2>&1; then dpkg --purge cni; fi");
    before = root.run(LISTING);
  }, 120_000);
  afterAll(() => resources.dispose());

  testWith(PROGRAMS, "refuses a directory of `cni install`, until `cni uninstall` has emptied it", () => {
    using namespaces = newNamespaces();
    root.run("dpkg-deb --extract /packages/cni_0.1.0.deb /tmp/unpacked");
    for (const options of ["--copy", "", "--no-shim"]) {
      root.run(`/tmp/unpacked/usr/lib/cni/cni-full install --force ${options} /usr/lib/cni`, namespaces.host);
      const installed = root.run(LISTING);
      expect(root.run(`${DPKG_INSTALL} /packages/cni_0.1.0.deb 2>&1 || :`)).toContain(
        'cni: Cannot install the package: /usr/lib/cni has files of the archive or of "cni install"; ' +
          'run "/usr/lib/cni/cni uninstall /usr/lib/cni" first\n',
      );
      expect(root.run(LISTING)).toBe(installed);
      root.run("/usr/lib/cni/cni uninstall /usr/lib/cni", namespaces.host);
      expect(root.run(LISTING)).toBe(before);
    }
    root.run("rm -r /tmp/unpacked");
  }, 120_000);

  testWith(PROGRAMS, "takes the place of the Go plugins, and keeps their files", () => {
    const theirs = root.run("sha256sum </usr/lib/cni/bridge");
    root.run(`${DPKG_INSTALL} /packages/cni_0.1.0.deb`);
    expect(root.run("sha256sum </usr/lib/cni/bridge.distrib")).toBe(theirs);
    // Engines start shims. No systemd runs here, so nobody listens: the socket is enabled for the next start of the machine.
    expect(root.run("cmp /usr/lib/cni/bridge /usr/lib/cni/cni; find /usr/lib/cni/cni -size -10k")).toContain("cni");
    expect(root.run("systemctl is-enabled cni.socket cni.service || :")).toBe("enabled\ndisabled\n");
    for (const name of ["bridge", "tap"]) {
      expect(root.run(`CNI_COMMAND=VERSION CNI_SOCKET=/none /usr/lib/cni/${name} </dev/null`)).toContain("1.1.0");
    }
    expect(root.run("cni --version")).toContain(`plugins: ${pluginNames().join(", ")}`);
    for (const words of ["install --copy", "install --force", "uninstall"]) {
      expect(root.run(`cni ${words} /usr/lib/cni 2>&1 || :`)).toMatch(
        /^cni: Cannot (un)?install .*"\/usr\/lib\/cni": its files are of the Debian package "cni": .*\n$/,
      );
    }
    expect(root.run("dpkg --verify cni")).toBe("");
    expect(root.run("man -w cni-run 5 cni.conflist")).toContain("/usr/share/man/man8/cni-run.8.gz");
    expect(root.run("bash -c '. /usr/share/bash-completion/completions/cni; complete -p cni'")).toContain("cni");
  }, 120_000);

  testWith([...PROGRAMS, "systemd-analyze"], "has units that systemd understands", () => {
    const units = ["cni.socket", "cni.service", "cni-restore@nftables.service"].map((name) =>
      `/lib/systemd/system/${name}`
    );
    expect(root.run(`systemd-analyze verify --recursive-errors=no ${units.join(" ")} 2>&1`)).toBe("");
  });

  testWith(PROGRAMS, "is upgraded under a container that stays attached, and is detached by the new version", () => {
    using namespaces = newNamespaces();
    const { host, container } = namespaces;
    const attachment = `${container.path} --container-id c1`;
    const cni = (verb: string, words = attachment) => root.run(`cni run ${verb} lan ${words} ${CONF_DIR}`, host);
    cni("add");
    runInNetns(host, "nft", "flush", "ruleset");
    root.run("systemctl disable cni.socket");
    root.run(`${DPKG_INSTALL} /packages/cni_0.2.0.deb`, host);
    expect(root.run("systemctl is-enabled cni.socket || :")).toBe("disabled\n");
    // In a chroot, dpkg changes nothing of the machine.
    expect(runInNetns(host, "nft", "list", "ruleset")).toBe("");
    cni("restore", "");
    expect(root.run("dpkg-query -W -f='${Version}' cni")).toBe("0.2.0");
    expect(root.run("cd /usr/lib/cni; ls -d cni-lib*; cat cni-lib/libc.so.6 | wc -c")).toMatch(
      /^cni-lib\ncni-lib-0\.2\.0\n\d{6,}\n$/,
    );
    cni("check");
    expect(runInNetns(container, "ip", "-o", "-4", "addr", "show", "eth0")).toContain("10.95.0.2/24");
    cni("del");
    expect(runInNetns(host, "ip", "-o", "link", "show", "type", "veth")).toBe("");
  }, 120_000);

  testWith(PROGRAMS, "leaves nothing when it is purged, and the Go plugins are back", () => {
    root.run("systemctl enable cni.service; dpkg --purge cni");
    expect(root.run(LISTING)).toBe(before);
  }, 120_000);
});
