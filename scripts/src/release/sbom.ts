/** The list of materials of a release (CycloneDX): packages by cyclonedx-npm, and the runtime with its parts. @module */
import { cpSync, existsSync, mkdirSync, readFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import { newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";
import { runtimeLicencePage } from "./licences.ts";
import { type Component, runtimeComponents } from "./sbom_runtime.ts";

const MANIFESTS = ["package.json", "package-lock.json"];
const GENERATOR = "node_modules/@cyclonedx/cyclonedx-npm/bin/cyclonedx-npm-cli.js";

interface Bom {
  readonly metadata: {
    readonly component: Component;
    readonly tools: { readonly components: readonly Component[] };
  };
  readonly components: readonly Component[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn?: readonly string[] }[];
}

/** A directory with the generator, installed below `dist/` once. */
export function ensureSbomTools(): string {
  const source = join(REPOSITORY_ROOT, "packaging/sbom");
  const lock = readFileSync(join(source, "package-lock.json"));
  const directory = join(REPOSITORY_ROOT, "dist/sbom", Bun.hash.wyhash(lock).toString(36));
  if (existsSync(directory)) return directory;
  mkdirSync(join(REPOSITORY_ROOT, "dist/sbom"), { recursive: true });
  using scratch = newScratchDirectory(join(REPOSITORY_ROOT, "dist/sbom"));
  const tools = join(scratch.path, "tools");
  for (const name of MANIFESTS) cpSync(join(source, name), join(tools, name));
  // Its optional packages only write XML.
  const flags = ["--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
  run(["npm", "ci", ...flags], tools);
  renameSync(tools, directory);
  return directory;
}

/** @param others that no package declares @returns the document as text @throws {Error} if the generator fails */
export function softwareBillOfMaterials(others: readonly Component[] = []): string {
  const generator = join(ensureSbomTools(), GENERATOR);
  const flags = ["--omit", "dev", "--output-reproducible", "--gather-license-texts", "--mc-type", "application"];
  const { stdout } = run(["node", generator, ...flags, "package.json"], REPOSITORY_ROOT);
  const bom = JSON.parse(stdout.toString()) as Bom;
  const runtime = runtimeComponents(runtimeLicencePage(), process.versions);
  return `${JSON.stringify(withComponents(bom, [...runtime, ...others]), null, 2)}\n`;
}

function withComponents(bom: Bom, added: readonly Component[]): Bom {
  const { component, tools } = bom.metadata;
  const references = added.map((part) => part["bom-ref"]);
  const isProgram = (ref: string) => ref === component["bom-ref"];
  return {
    ...bom,
    // Machines have different versions of npm, which has listed installed packages only.
    metadata: { ...bom.metadata, tools: { components: tools.components.filter(({ name }) => name !== "npm") } },
    components: [...bom.components, ...added],
    dependencies: [
      ...bom.dependencies.map((entry) =>
        isProgram(entry.ref) ? { ...entry, dependsOn: [...entry.dependsOn ?? [], ...references] } : entry
      ),
      ...references.map((ref) => ({ ref })),
    ],
  };
}

function run(command: readonly string[], cwd: string) {
  const child = Bun.spawnSync([...command], { cwd, stderr: "pipe" });
  if (child.success) return child;
  throw new Error(`Cannot list what the release contains: "${command.join(" ")}" failed:\n${child.stderr}`);
}
