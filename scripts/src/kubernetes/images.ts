/** Images of containers, made by hand: there is no registry. @module */
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { writeImageArchive } from "../../../testing/image_archive.ts";
import { separateAptOptions } from "../harness/apt.ts";
import { runIn } from "../harness/process.ts";
import { hostLibraries } from "../image/main.ts";
import { imageArchive } from "../release/image.ts";
import { CNI_PROGRAM, makeDirectoryOnce, REPOSITORY_ROOT } from "../repository.ts";
import { inCluster } from "./directory.ts";
import { POD_IMAGE } from "./node_programs.ts";
import { agnhostSources, programDirectory } from "./programs.ts";

/** The archive of this checkout's own image. */
export const OWN_IMAGE = inCluster("cni.tar");

/** What tests call in pods beside agnhost. */
const PACKAGES = [
  "bind9-dnsutils",
  "busybox-static",
  "conntrack",
  "curl",
  "dash",
  "libc-bin",
  "netcat-openbsd",
  "wget",
];
/** Images of the list of e2e.test that one image can stand for. */
const TEST_IMAGE = /\/(agnhost|busybox|distroless-iptables|jessie-dnsutils|pause):/;

/** Another recipe, which is this file, has another directory. */
const imageDirectory = (): string =>
  `${programDirectory()}-images-${Bun.hash.wyhash(readFileSync(import.meta.path, "utf8") + POD_IMAGE).toString(36)}`;

/** The archives for each node but that of the network, made if they are not there. */
export function ensureClusterImages(): readonly string[] {
  const directory = makeDirectoryOnce(imageDirectory(), (scratch) => {
    console.log("Making the image of tests and name server (once, half a minute, 40 MB to download)");
    const made = join(scratch, "made");
    mkdirSync(made);
    makeTestImage(scratch, join(made, "test.tar"));
    return made;
  });
  return readdirSync(directory).map((name) => join(directory, name));
}

const run = (...argv: string[]): string => runIn("/", ...argv);

/** Debian's programs, not those of busybox, where both have one: its shell runs its own `nc`, which has no `-u`. */
function makeTestImage(scratch: string, archive: string): void {
  const root = join(scratch, "root");
  unpackPackages(scratch, root);
  for (const name of ["agnhost", "coredns"]) copyFileSync(join(programDirectory(), name), join(root, name));
  for (const name of ["localhost.crt", "localhost.key"]) copySource(name, root);
  symlinkSync("nc.openbsd", join(root, "bin/nc"));
  const places = ["usr/sbin", "usr/bin", "sbin", "bin"].map((path) => join(root, path));
  if (!existsSync(join(root, "bin/sh"))) symlinkSync("dash", join(root, "bin/sh"));
  for (const name of run(join(root, "bin/busybox"), "--list").trim().split("\n")) {
    const isThere = places.some((place) => existsSync(join(place, name)));
    if (!isThere) symlinkSync("/bin/busybox", join(root, "bin", name));
  }
  for (const path of ["etc", "tmp", "proc", "sys", "dev", "run", "root"]) {
    mkdirSync(join(root, path), { recursive: true });
  }
  chmodSync(join(root, "tmp"), 0o1777);
  writeFileSync(join(root, "etc/passwd"), "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n");
  writeFileSync(join(root, "etc/group"), "root:x:0:\nnogroup:x:65534:\n");
  writeFileSync(join(root, "etc/nsswitch.conf"), "hosts: files dns\n");
  const list = run(join(programDirectory(), "e2e.test"), "--list-images").split("\n").filter((name) =>
    TEST_IMAGE.test(name)
  );
  const settings = { Entrypoint: ["/agnhost"], Cmd: ["pause"], Env: ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"] };
  writeImageArchive(archive, { root, names: [...list, POD_IMAGE], settings }, run);
}

function unpackPackages(scratch: string, root: string): void {
  const options = separateAptOptions(join(scratch, "apt"), "amd64");
  runIn(scratch, "apt-get", "-qq", ...options, "update");
  const install = ["-y", "--download-only", "--no-install-recommends", "install", ...PACKAGES];
  runIn(scratch, "apt-get", "-qq", ...options, ...install);
  const archives = join(scratch, "apt/cache/archives");
  for (const name of readdirSync(archives).filter((file) => file.endsWith(".deb"))) {
    runIn(archives, "dpkg-deb", "-x", name, root);
  }
  for (const path of ["usr/share", "usr/lib/x86_64-linux-gnu/perl-base", "var"]) run("rm", "-rf", join(root, path));
}

/** The sources of agnhost have a key and a certificate that its clients expect. */
function copySource(name: string, root: string): void {
  const [path] = [...new Bun.Glob(`**/${name}`).scanSync({ cwd: agnhostSources() })];
  if (path === undefined) throw new Error(`Cannot make the image of tests: ${agnhostSources()} has no ${name}`);
  copyFileSync(join(agnhostSources(), path), join(root, name));
}

/** The image of this checkout, as a release has it. It is made anew each time: nobody waits for a compressor. */
export function makeOwnImage(archive: string): void {
  const { version } = JSON.parse(readFileSync(join(REPOSITORY_ROOT, "package.json"), "utf8"));
  const program = readFileSync(CNI_PROGRAM);
  const part = { processor: "x64", program, libraries: hostLibraries(CNI_PROGRAM) } as const;
  writeFileSync(archive, imageArchive([part], {}, { version, time: 0 }, 1));
}
