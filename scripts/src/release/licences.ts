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

/** Files for each release: the licence of the project, and those of its parts. */
export function licenceTexts(): Readonly<Record<string, string>> {
  const parts = packagedFolders().map((folder) => {
    const { name, version } = JSON.parse(read(`${folder}/package.json`));
    const file = readdirSync(join(REPOSITORY_ROOT, folder)).sort().find((entry) => /^licen[cs]e/i.test(entry));
    if (file === undefined) throw new Error(`Cannot find the licence of ${name}: it has no such file`);
    return section(`${name} ${version}`, read(`${folder}/${file}`));
  });
  const runtime = section(`Bun ${PATCHED_RUNTIME}`, runtimeLicencePage());
  return { LICENSE: read("LICENSE"), "LICENSE.third-party": [runtime, ...parts].join("\n") };
}

const section = (title: string, text: string): string => `${title}\n${"=".repeat(title.length)}\n\n${text.trim()}\n`;
