/** URLPattern (urlpattern-polyfill, the reference implementation). */
export { URLPattern } from "urlpattern-polyfill/urlpattern";
