/**
 * The type of documents that tests look into at many places: what plugins and ip(8) print.
 *
 * @module
 */

/** A JSON document, or a part of one. */
// deno-lint-ignore no-explicit-any -- a schema for each would be longer than the tests
export type JsonDocument = any;
