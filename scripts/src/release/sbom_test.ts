import { Ajv } from "ajv";
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ensureNpmPackage } from "../harness/npm_package.ts";
import { glibcComponent } from "./glibc.ts";
import { licenceTexts, packagedFolders, runtimeLicencePage } from "./licences.ts";
import { softwareBillOfMaterials } from "./sbom.ts";
import { type Component, runtimeComponents } from "./sbom_runtime.ts";

/** Has the schema of CycloneDX. */
const SCHEMA_PACKAGE = [
  "@cyclonedx/cyclonedx-library",
  "10.3.0",
  "sha512-RIT28sp1U0PCHaaeF3yNRwk6Jig/XJ8UsYAVOMYaHQ+0VVOvsjcp0PTWQFLUqJFF8XMud+Kdq6G+wtDAh+QJFA==",
] as const;

function validator() {
  const directory = join(ensureNpmPackage(...SCHEMA_PACKAGE), "res/schema");
  const schema = (name: string) => JSON.parse(readFileSync(join(directory, `${name}.SNAPSHOT.schema.json`), "utf8"));
  const ajv = new Ajv({ strict: false, validateFormats: false });
  for (const name of ["spdx", "jsf-0.82", "cryptography-defs"]) {
    ajv.addSchema(schema(name), `http://cyclonedx.org/schema/${name}.SNAPSHOT.schema.json`);
  }
  return ajv.compile(schema("bom-1.6"));
}

test("the list of materials is valid, and names each package and Bun with its parts", () => {
  const libc = { path: "lib/libc.so.6", data: Buffer.from("GNU C Library (Debian GLIBC 2.36-9+deb12u1) stable") };
  const glibc = glibcComponent("x64", [libc]);
  expect(glibc.purl).toBe("pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64");
  const text = softwareBillOfMaterials([glibc]);
  const bom = JSON.parse(text);
  const validate = validator();
  validate(bom);
  expect(validate.errors).toBeNull();
  for (const unstable of ["serialNumber", "timestamp"]) expect(text).not.toContain(`"${unstable}"`);
  const names = bom.components.map(({ group, name }: { group?: string; name: string }) =>
    group === undefined ? name : `${group}/${name}`
  );
  const packages = packagedFolders().map((folder) => folder.replace(/^.*node_modules\//, ""));
  expect(names.sort()).toEqual([...packages, "bun", "glibc"].sort());
  expect(packages).toContain("prom-client");
  for (const component of bom.components) expect(component.licenses).not.toEqual([]);
  const neededBy = Object.fromEntries(
    bom.dependencies.map(({ ref, dependsOn }: { ref: string; dependsOn?: string[] }) => [ref, dependsOn]),
  );
  expect(Object.keys(neededBy).sort()).toEqual(
    [bom.metadata.component, ...bom.components].map((component) => component["bom-ref"]).sort(),
  );
  const [program] = Object.keys(neededBy).filter((ref) => ref.startsWith("pkg:npm/%40cni/cni@"));
  expect(neededBy[program!]).toEqual([
    expect.stringMatching(/^pkg:npm\/jsonc-parser@/),
    expect.stringMatching(/^pkg:npm\/prom-client@/),
    expect.stringMatching(/^bun@/),
    glibc.purl,
  ]);
  const [client] = Object.keys(neededBy).filter((ref) => ref.startsWith("pkg:npm/prom-client@"));
  expect(neededBy[client!]).toEqual([
    expect.stringMatching(/^pkg:npm\/%40opentelemetry\/api@/),
    expect.stringMatching(/^pkg:npm\/tdigest@/),
  ]);
}, 60_000);

test("parts of Bun have the versions and licences that it declares", () => {
  const [bun] = runtimeComponents(runtimeLicencePage(), process.versions);
  const part = (name: string) => bun!.components!.find((component) => component.name === name);
  expect(part("JavaScriptCore")).toMatchObject({ version: process.versions["webkit"]! });
  expect(part("c-ares")).toMatchObject({
    version: process.versions["ares"]!,
    licenses: [{ license: { id: "MIT" } }],
  });
  expect(part("zstd")!.licenses).toEqual([{ license: { name: expect.stringContaining("GPLv2") } }]);
  expect(part("llhttp")).toMatchObject({ version: process.versions["llhttp"]! });
  for (const name of ["node", "libuv", "v8"]) expect(part(name)).toBeUndefined();
  // What has a version and is no part is listed; anything new must be put somewhere.
  const references = bun!.components!.map((component: Component) => component["bom-ref"]);
  expect(new Set(references).size).toBe(references.length);
  for (const folder of packagedFolders()) {
    expect(licenceTexts()["LICENSE.third-party"]).toContain(folder.replace("node_modules/", ""));
  }
});

test("runtimeComponents() refuses a page that it cannot read", () => {
  expect(() => runtimeComponents("Bun is free.\n", {})).toThrow("another form");
});
