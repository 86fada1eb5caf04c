export { distance, suggestion } from "../plugins/spec/suggest.ts";
