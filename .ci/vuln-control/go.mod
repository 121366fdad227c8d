// A module with a known vulnerability, to show that .ci/vuln finds one.
module github.com/weavebus/weavebus/.ci/vuln-control

go 1.26

require golang.org/x/text v0.3.5
