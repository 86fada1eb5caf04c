/** A release on hosts with each C library, an older or newer glibc, or none: its own is used. */
import { describe, expect } from "bun:test";
import { chmodSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { testWith } from "../testing/binary.ts";
import {
  BUSYBOX,
  CONTAINER_NETNS,
  HOST_ROOT_PROGRAMS,
  type HostRoot,
  newHostRoot,
  RELEASE,
  terminate,
  type UnpackedPackage,
} from "../testing/host_root.ts";
import {
  callInRoot,
  startServerInRoot,
  succeedInRoot,
  untilMeasured,
  untilServed,
  useNetworkInRoot,
} from "../testing/host_root_calls.ts";
import { newNamespaces } from "../testing/netns.ts";
import { sampleOf } from "../testing/sample.ts";

interface Host {
  readonly name: string;
  readonly packages: readonly UnpackedPackage[];
  /** Where its engines look for plugins. */
  readonly bin: string;
}

const DOWNLOADS = ["apt-get", "dpkg-deb"];
const NOTHING: Host = { name: "no libc", packages: [], bin: "/opt/cni/bin" };
const OTHERS: readonly Host[] = [
  { name: "musl", packages: [{ name: "musl" }, { name: "busybox-static" }], bin: "/opt/cni/bin" },
  { name: "nothing outside of /nix", packages: [], bin: "/nix/store/0c1f-cni-plugins/bin" },
  { name: "the glibc of Debian 11", packages: [{ name: "libc6", release: "bullseye" }], bin: "/usr/lib/cni" },
  { name: "the glibc of Debian 12", packages: [{ name: "libc6", release: "bookworm" }], bin: "/usr/lib/cni" },
  { name: "the glibc of Debian 13", packages: [{ name: "libc6", release: "trixie" }], bin: "/usr/lib/cni" },
];
const NOBODY = 65534;

/** Each way in which a user of the root starts the program. */
async function use(root: HostRoot, bin: string, host: Netns): Promise<void> {
  const plugin = `${bin}/bridge`;
  succeedInRoot(root, `${RELEASE}/cni`, "install", "--copy", "--no-shim", bin);
  expect(readdirSync(join(root.directory, bin, "cni-lib"))).toContain("libc.so.6");
  expect(JSON.parse(callInRoot(root, plugin, "VERSION")).supportedVersions).toContain("1.1.0");
  symlinkSync(`${bin}/cni`, join(root.directory, "loopback"));
  expect(JSON.parse(callInRoot(root, "/loopback", "VERSION")).supportedVersions).toContain("1.1.0");
  useNetworkInRoot(root, plugin, host);

  succeedInRoot(root, `${bin}/cni`, "install", bin);
  useNetworkInRoot(root, plugin, host);
  const cni = `${bin}/cni-full`;
  const first = await startServerInRoot(root, [cni]);
  useNetworkInRoot(root, plugin, host);
  await untilServed(root, [cni], 2);
  const second = await startServerInRoot(root, [cni], "--replace");
  expect(await first.exited).toBe(0);
  useNetworkInRoot(root, plugin, host);
  await untilServed(root, [cni], 2);
  await untilMeasured(root);
  terminate(second);
  expect(await second.exited).toBe(0);

  succeedInRoot(root, cni, "uninstall", bin);
  expect(readdirSync(join(root.directory, bin))).toEqual([]);
}

describe("a host with", () => {
  testWith([...HOST_ROOT_PROGRAMS, "ip"], `${NOTHING.name} runs all of a release`, async () => {
    using namespaces = newNamespaces();
    using root = await newHostRoot(namespaces, NOTHING.packages);
    await use(root, NOTHING.bin, namespaces.host);
  });

  for (const { name, packages, bin } of sampleOf(OTHERS)) {
    testWith([...HOST_ROOT_PROGRAMS, ...DOWNLOADS, "ip"], `${name} runs all of a release`, async () => {
      using namespaces = newNamespaces();
      using root = await newHostRoot(namespaces, packages);
      await use(root, bin, namespaces.host);
    }, 120_000);
  }

  testWith(
    [...HOST_ROOT_PROGRAMS, ...DOWNLOADS],
    "an older glibc runs the program alone, which is built without libraries",
    async () => {
      using namespaces = newNamespaces();
      using root = await newHostRoot(namespaces, [{ name: "libc6", release: "bullseye" }], false);
      expect(root.run([`${RELEASE}/cni`, "--version"])).toMatchObject({ exitCode: 0, stderr: "" });
    },
    120_000,
  );

  testWith(HOST_ROOT_PROGRAMS, "no libc says that the libraries are missing", async () => {
    using namespaces = newNamespaces();
    using root = await newHostRoot(namespaces, [], false);
    expect(root.run([`${RELEASE}/cni`, "--version"])).toEqual({
      exitCode: 1,
      stdout: "",
      stderr: "cni: Cannot start: this host has no glibc, and the directory cni-lib is not beside the program: " +
        "install all files of the release\n",
    });
  });
});

describe("the libraries of a caller", () => {
  // nsenter would obey variables as well.
  const version = (root: HostRoot, variables: readonly string[] = [], user = 0) =>
    root.run([BUSYBOX, "env", ...variables, `${RELEASE}/cni`, "--version"], { user });

  testWith([...HOST_ROOT_PROGRAMS, "cc"], "in /etc/ld.so.preload and LD_PRELOAD may need a newer glibc", async () => {
    using namespaces = newNamespaces();
    using root = await newHostRoot(namespaces, []);
    const expected = version(root);
    expect(expected).toMatchObject({ exitCode: 0, stderr: "" });
    const script = `cd "$1"; echo 'GLIBC_9.9 { newer; };' >map; echo 'void newer(void) {}' >newer.c
      echo 'void newer(void); void callInRoot(void) { newer(); }' >call.c
      cc -shared -nostdlib -Wl,-soname,libc.so.6 -Wl,--version-script=map -o newer.so newer.c
      cc -shared -nostdlib -o call.so call.c newer.so; echo /call.so >etc/ld.so.preload`;
    expect(Bun.spawnSync(["sh", "-ec", script, "sh", root.directory]).stderr.toString()).toBe("");
    expect(version(root)).toEqual(expected);
    expect(version(root, ["LD_PRELOAD=/call.so", "LD_AUDIT=/call.so"])).toEqual(expected);
  });

  testWith(HOST_ROOT_PROGRAMS, "are not those of the program", async () => {
    using namespaces = newNamespaces();
    using root = await newHostRoot(namespaces, []);
    const { directory } = root;
    mkdirSync(join(directory, "lib"));
    for (const name of readdirSync(join(directory, RELEASE, "cni-lib"))) {
      writeFileSync(join(directory, "lib", name), "text");
    }
    const expected = version(root);
    expect(expected).toMatchObject({ exitCode: 0, stderr: "" });
    const variables = ["LD_LIBRARY_PATH=/lib", "LD_PRELOAD=/lib/libm.so.6"];
    expect(version(root, variables)).toEqual(expected);
    // The kernel sets AT_SECURE.
    chmodSync(join(directory, RELEASE, "cni"), 0o4755);
    chmodSync(directory, 0o755);
    expect(version(root, variables, NOBODY)).toEqual(expected);
  });

  testWith(HOST_ROOT_PROGRAMS, "have tunables that may stop the program's", async () => {
    using namespaces = newNamespaces();
    using root = await newHostRoot(namespaces, []);
    const expected = version(root);
    expect(expected).toMatchObject({ exitCode: 0, stderr: "" });
    // With static TLS of such a size, the loader dies of SIGSEGV.
    expect(version(root, ["GLIBC_TUNABLES=glibc.rtld.optional_static_tls=18446744073709550000"])).toEqual(expected);
  });

  testWith(HOST_ROOT_PROGRAMS, "are for programs that it starts", async () => {
    using namespaces = newNamespaces();
    using root = await newHostRoot(namespaces, []);
    succeedInRoot(root, `${RELEASE}/cni`, "install", "--no-shim", "/bin");
    const script = `#!${BUSYBOX} sh\n${BUSYBOX} env >/seen\nexit 1\n`;
    writeFileSync(join(root.directory, "bin/other"), script, { mode: 0o755 });
    const variables = ["LD_PRELOAD=/first.so:/second.so", "LD_LIBRARY_PATH=", "GLIBC_TUNABLES=glibc.malloc.check=3"];
    const config = { cniVersion: "1.1.0", name: "lan", type: "bridge", ipam: { type: "other" } };
    const env = {
      CNI_COMMAND: "ADD",
      CNI_CONTAINERID: "c1",
      CNI_NETNS: CONTAINER_NETNS,
      CNI_IFNAME: "eth0",
      CNI_PATH: "/bin",
    };
    root.run([BUSYBOX, "env", ...variables, "/bin/bridge"], { env, stdin: JSON.stringify(config) });
    const seen = readFileSync(join(root.directory, "seen"), "utf8").split("\n");
    expect(seen).toEqual(expect.arrayContaining(variables));
  });
});

describe("a user who is not root", () => {
  testWith(
    [...HOST_ROOT_PROGRAMS, "setcap"],
    "calls what root has installed for itself, with its capabilities",
    async () => {
      using namespaces = newNamespaces();
      using root = await newHostRoot(namespaces, []);
      chmodSync(root.directory, 0o755);
      const wrapper = [BUSYBOX, "sh", "-c", 'umask 077; exec "$@"', "sh"];
      const directories = { "/opt/copy/bin": ["--copy", "--no-shim"], "/opt/shim/bin": ["--copy"] };
      for (const [directory, options] of Object.entries(directories)) {
        expect(root.run([`${RELEASE}/cni`, "install", ...options, directory], { wrapper })).toMatchObject({
          exitCode: 0,
          stderr: "",
        });
      }
      symlinkSync("/opt/copy/bin/cni", join(root.directory, "portmap"));
      const forms = ["/opt/copy/bin/bridge", "/portmap", "/opt/shim/bin/bridge"];
      const commands = [`${RELEASE}/cni`, "/opt/copy/bin/cni", "/opt/shim/bin/cni-full"];
      const versions = (user: number) => [
        ...forms.map((plugin) => root.run([plugin], { env: { CNI_COMMAND: "VERSION" }, stdin: "{}", user })),
        ...commands.map((program) => root.run([program, "--version"], { user })),
      ];
      const expected = versions(0);
      for (const finished of expected) {
        expect(finished).toEqual({ exitCode: 0, stdout: expect.stringContaining("1.1.0"), stderr: "" });
      }
      expect(versions(NOBODY)).toEqual(expected);
      for (const program of commands) {
        const { stderr } = Bun.spawnSync(["setcap", "cap_net_admin,cap_sys_admin+ep", join(root.directory, program)]);
        expect(stderr.toString()).toBe("");
      }
      expect(versions(NOBODY)).toEqual(expected);

      chmodSync(join(root.directory, "/opt/copy/bin/cni-lib"), 0o700);
      expect(root.run(["/opt/copy/bin/cni", "--version"], { user: NOBODY })).toEqual({
        exitCode: 1,
        stdout: "",
        stderr:
          "cni: Cannot start: this user may not read the directory cni-lib beside the program: allow it (chmod -R a+rX)\n",
      });
    },
  );
});

describe("cni install", () => {
  testWith(
    HOST_ROOT_PROGRAMS,
    "refuses a directory from which nothing may be executed, and changes nothing",
    async () => {
      using namespaces = newNamespaces();
      using root = await newHostRoot(namespaces, []);
      mkdirSync(join(root.directory, "noexec"));
      const script = `${BUSYBOX} mount -t tmpfs -o noexec none /noexec; ${BUSYBOX} touch /noexec/bridge
        "$@" || { ${BUSYBOX} ls -A /noexec; exit 1; }`;
      const wrapper = [BUSYBOX, "unshare", "-m", BUSYBOX, "sh", "-ec", script, "sh"];
      for (const options of [["--copy", "--no-shim"], [], ["--copy"]]) {
        expect(root.run([`${RELEASE}/cni`, "install", "--force", ...options, "/noexec"], { wrapper })).toEqual({
          exitCode: 1,
          stdout: "bridge\n",
          stderr: expect.stringMatching(
            /^cni: Cannot install into "\/noexec": what would be there does not run \(nothing was changed\): [^\n]*noexec[^\n]*\n$/,
          ),
        });
      }
    },
  );
});
