/** The body of `scripts/docs`: writes the pages that follow from the plugins' docs.ts. @module */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";
import { generatedFiles, loadDocumentedPlugins } from "./generate.ts";

mkdirSync(join(REPOSITORY_ROOT, "docs/plugins"), { recursive: true });
const files = Object.entries(generatedFiles(await loadDocumentedPlugins()));
for (const [path, text] of files) writeFileSync(join(REPOSITORY_ROOT, path), text);
console.log(`Wrote ${files.length} files.`);
