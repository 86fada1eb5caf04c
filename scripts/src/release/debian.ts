/** Debian packages, written without tools that ask the clock or the user. @see deb(5) @module */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { COMMAND_NAME, FULL_PROGRAM_NAME } from "../../../program/installed_file.ts";
import { pluginNames } from "../../../plugins/registry.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { type Binaries, gzip, type TextFiles } from "./plugin_archive.ts";
import { tar, type TarEntry } from "./tar.ts";

export interface DebianRelease {
  readonly version: string;
  /** `amd64` */
  readonly architecture: string;
  /** Name and address. */
  readonly maintainer: string;
  readonly time: number;
}

/** What the program prints to be installed: a text for each path below /usr/share. */
export type Documentation = TextFiles;

const BIN = "usr/lib/cni";
const UNIT_DIRECTORY = "lib/systemd/system";
const UNITS = ["cni.socket", "cni.service", "cni-restore@.service"];
/** Their restart removes rules of ours. */
const FIREWALLS = ["nftables", "firewalld"];
const SCRIPTS = ["preinst", "postinst", "prerm", "postrm"];
const DESCRIPTION = `runtime and plugins of CNI in one program
 CNI (Container Network Interface) is how container engines connect the
 containers that they run. This is a runtime for people and scripts, and all
 plugins that engines call, in one program. It takes the place of the plugins
 of containernetworking-plugins while it is installed.`;

const packaging = (name: string): string => readFileSync(join(REPOSITORY_ROOT, "packaging/debian", name), "utf8");

/** @param isCompressed not for tests, which would take long */
export function debianPackage(
  release: DebianRelease,
  binaries: Binaries,
  texts: TextFiles,
  documentation: Documentation,
  isCompressed = true,
): Buffer {
  const files = packageFiles(release, binaries, texts, documentation);
  const control = controlFiles(release, files);
  const data = tar(underRoot(files), release.time);
  return ar([
    ["debian-binary", Buffer.from("2.0\n")],
    ["control.tar.gz", gzip(tar(underRoot(control), release.time))],
    isCompressed ? ["data.tar.xz", xz(data)] : ["data.tar", data],
  ], release.time);
}

function packageFiles(
  release: DebianRelease,
  { program, shim }: Binaries,
  texts: TextFiles,
  documentation: Documentation,
): readonly TarEntry[] {
  const text = (path: string, data: string | Uint8Array): TarEntry => ({ path, mode: 0o644, data: Buffer.from(data) });
  const link = (path: string, symlink: string): TarEntry => ({ path, mode: 0o777, symlink });
  const compressed = (path: string, data: string) => text(`${path}.gz`, gzip(Buffer.from(data)));
  const isCompressed = (path: string) => path.startsWith("man/");
  return [
    { path: `${BIN}/${FULL_PROGRAM_NAME}`, data: program },
    { path: `${BIN}/${COMMAND_NAME}`, data: shim },
    ...pluginNames().map((name) => link(`${BIN}/${name}`, COMMAND_NAME)),
    link(`usr/sbin/${COMMAND_NAME}`, `../lib/cni/${COMMAND_NAME}`),
    ...UNITS.map((name) => text(`${UNIT_DIRECTORY}/${name}`, packaging(name))),
    ...FIREWALLS.map((name) =>
      link(`${UNIT_DIRECTORY}/${name}.service.wants/cni-restore@${name}.service`, "../cni-restore@.service")
    ),
    ...Object.entries(documentation).map(([path, data]) =>
      isCompressed(path) ? compressed(`usr/share/${path}`, data) : text(`usr/share/${path}`, data)
    ),
    text("usr/share/doc/cni/copyright", packaging("copyright")),
    text("usr/share/doc/cni/LICENSE.third-party", texts["LICENSE.third-party"] ?? ""),
    compressed("usr/share/doc/cni/changelog", debianChangelog(release)),
    text("usr/share/lintian/overrides/cni", packaging("lintian-overrides")),
  ];
}

function controlFiles(
  { version, architecture, maintainer }: DebianRelease,
  files: readonly TarEntry[],
): readonly TarEntry[] {
  const data = files.flatMap((file) => "data" in file ? [file] : []);
  const md5 = (bytes: Uint8Array) => new Bun.CryptoHasher("md5").update(bytes).digest("hex");
  const size = data.reduce((sum, file) => sum + Math.ceil(file.data.length / 1024), files.length - data.length);
  const control = [
    "Package: cni",
    `Version: ${version}`,
    `Architecture: ${architecture}`,
    `Maintainer: ${maintainer}`,
    `Installed-Size: ${size}`,
    // The versions of symbols that the runtime is linked with.
    "Depends: libc6 (>= 2.17), init-system-helpers (>= 1.54~)",
    "Suggests: containerd | podman | cri-o",
    "Section: net",
    "Priority: optional",
    `Description: ${DESCRIPTION}\n`,
  ].join("\n");
  return [
    { path: "control", mode: 0o644, data: Buffer.from(control) },
    {
      path: "md5sums",
      mode: 0o644,
      data: Buffer.from(data.map((file) => `${md5(file.data)}  ${file.path}\n`).sort().join("")),
    },
    ...SCRIPTS.map((path) => ({
      path,
      data: Buffer.from(packaging(path).replaceAll("@PLUGINS@", pluginNames().join(" "))),
    })),
  ];
}

/** The section of CHANGELOG.md on this version, in Debian's form. */
function debianChangelog({ version, maintainer, time }: DebianRelease): string {
  const changes = readFileSync(join(REPOSITORY_ROOT, "CHANGELOG.md"), "utf8");
  const section = changes.split(/^## /m).find((part) => part.startsWith(`${version},`)) ?? "";
  const items = section.split(/^- /m).slice(1).map((item) => {
    const lines = item.replace(/\s+/g, " ").trim().match(/.{1,74}(?= |$)/g) ?? [];
    return `  * ${lines.map((line) => line.trim()).join("\n    ")}`;
  });
  const date = new Date(time * 1000).toUTCString().replace("GMT", "+0000");
  return [`cni (${version}) unstable; urgency=medium`, "", ...items, "", ` -- ${maintainer}  ${date}`, ""].join("\n");
}

/** With the folders of all entries, below `./` as dpkg-deb(1) writes them. */
function underRoot(entries: readonly TarEntry[]): readonly TarEntry[] {
  const folders = new Set<string>();
  for (const { path } of entries) {
    const names = path.split("/").slice(0, -1);
    names.forEach((_, i) => folders.add(names.slice(0, i + 1).join("/")));
  }
  const all: readonly TarEntry[] = [...[...folders].map((path) => ({ path, isDirectory: true }) as const), ...entries];
  const sorted = all.toSorted((a, b) => a.path < b.path ? -1 : 1);
  return [{ path: ".", isDirectory: true }, ...sorted.map((entry) => ({ ...entry, path: `./${entry.path}` }))];
}

function xz(data: Uint8Array): Uint8Array {
  // With more threads, the bytes would be others.
  const { success, stdout } = Bun.spawnSync(["xz", "-c", "-T1", "-6"], {
    stdin: data as Uint8Array<ArrayBuffer>,
  });
  if (!success) throw new Error("Cannot compress the package: xz failed");
  return stdout;
}

type Member = readonly [name: string, data: Uint8Array];

/** @see ar(5) */
export function ar(members: readonly Member[], time: number): Buffer {
  const parts = members.flatMap(([name, data]) => {
    const fields = [[name, 16], [time, 12], [0, 6], [0, 6], [100644, 8], [data.length, 10]] as const;
    const header = `${fields.map(([value, width]) => `${value}`.padEnd(width)).join("")}\`\n`;
    return [Buffer.from(header), data, Buffer.alloc(data.length % 2, "\n")];
  });
  return Buffer.concat([Buffer.from("!<arch>\n"), ...parts]);
}
