/** The licences of what the program contains, as its parts declare them. @module */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";
import { PATCHED_RUNTIME } from "../build/runtime_patch.ts";

/** The page on licences of the runtime; it comes with the types, which have the same version. */
const RUNTIME_PAGE = "node_modules/bun-types/docs/project/license.mdx";

const read = (path: string): string => readFileSync(join(REPOSITORY_ROOT, path), "utf8");

/** The runtime's own page on the licences of its parts. @throws {Error} if it is of another version */
export function runtimeLicencePage(): string {
  const { version } = JSON.parse(read("node_modules/bun-types/package.json"));
  if (version === PATCHED_RUNTIME) return read(RUNTIME_PAGE).replace(/^---\n[^]*?\n---\n+/, "");
  throw new Error(`Cannot find the licences of Bun ${PATCHED_RUNTIME}: bun-types has version ${version}`);
}

/** Folders below node_modules of packages that are part of the program. */
export function packagedFolders(): readonly string[] {
  const { packages } = JSON.parse(read("package-lock.json")) as { packages: Record<string, { dev?: boolean }> };
  return Object.keys(packages).filter((path) => path !== "" && !packages[path]!.dev).sort();
}

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly description?: string;
  readonly license: string;
  readonly homepage?: string;
  readonly dependencies?: Readonly<Record<string, string>>;
}

/** @param folder below the root of the repository */
export const readPackage = (folder: string): Manifest => JSON.parse(read(join(folder, "package.json")));

/** The file with the licence of a package. @throws {Error} if there is none */
export function packageLicence(folder: string): { readonly file: string; readonly text: string } {
  const file = readdirSync(join(REPOSITORY_ROOT, folder)).sort().find((entry) => /^licen[cs]e/i.test(entry));
  if (file === undefined) {
    throw new Error(`Cannot find the licence of ${readPackage(folder).name}: it has no such file`);
  }
  return { file, text: read(join(folder, file)) };
}

/** Files for each release: the licence of the project, and those of its parts. */
export function licenceTexts(): Readonly<Record<string, string>> {
  const parts = packagedFolders().map((folder) => {
    const { name, version } = readPackage(folder);
    return section(`${name} ${version}`, packageLicence(folder).text);
  });
  const runtime = section(`Bun ${PATCHED_RUNTIME}`, runtimeLicencePage());
  return { LICENSE: read("LICENSE"), "LICENSE.third-party": [runtime, ...parts].join("\n") };
}

const section = (title: string, text: string): string => `${title}\n${"=".repeat(title.length)}\n\n${text.trim()}\n`;
