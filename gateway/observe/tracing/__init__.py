"""Requests as spans for an OTLP collector. Off unless `gateway.traces` names one."""
